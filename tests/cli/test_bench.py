from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from foretell.analysis.bench_report import BenchReport
from foretell.analysis.records import Spread
from foretell.analysis.summary import RunSummary
from foretell.cli.bench_lines import _best, _policy

RUN_FIELDS = {
    *("system", "drafter", "depth", "batch", "domain", "dtype", "num_prompts", "num_output_tokens"),
    *("decode_tokens_per_s", "speedup", "mean_acceptance_length", "acceptance_by_depth", "time_share"),
    *("extra_memory_bytes", "num_nodes", "request_tokens_per_s", "mode"),
}
ENVIRONMENT_FIELDS = {
    "cpu",
    "cores",
    "torch",
    "transformers",
    "foretell",
    "commit",
    "threads",
    "date",
    "dtype",
    "command",
    "load",
}


def test_bench_file_and_table(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    line = ("bench", folders / "cycle", "--heads", folders / "right", "--prompts", prompts, "--dtype", "float32")
    ran = run(*line, "--depths", "0,3", "--max-tokens", 13, "--repeats", 2, "--reference", "--json", out)
    assert ran.code == 0
    data = json.loads(out.read_text())
    assert set(data["environment"]) >= ENVIRONMENT_FIELDS
    assert all(set(r) >= RUN_FIELDS for r in data["runs"])
    keys = [(r["domain"], r["system"], r["depth"]) for r in data["runs"]]
    systems = [("foretell", 0), ("foretell", 3), ("transformers", 0)]
    assert keys == [(domain, *system) for domain in ("all", "letters", "code") for system in systems]
    plain, drafted, reference = data["runs"][:3]
    assert plain["speedup"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert plain["drafter"] is None and plain["extra_memory_bytes"] == 0 and plain["acceptance_by_depth"] == []
    assert drafted["drafter"] == "heads" and drafted["extra_memory_bytes"] > 0
    assert drafted["mean_acceptance_length"] == 4.0 and drafted["acceptance_by_depth"] == [1.0, 1.0, 1.0]
    assert abs(sum(drafted["time_share"].values()) - 1) < 1e-9
    assert drafted["num_prompts"] == 3 and drafted["num_output_tokens"] == 3 * 2 * 13
    assert reference["time_share"] is None and reference["speedup_over_reference"]["median"] == 1.0
    assert data["differences"] == [] and data["num_reference_differences"] == 0
    assert "Text equal to depth 0: 3 of 3." in ran.out
    assert "Text of transformers equal to depth 0: 3 of 3" in ran.out
    assert f"Best depth: {data['best_depth']}" in ran.out
    assert [line.split()[0] for line in ran.out.splitlines()[1:10]] == [name for name, _, _ in keys]


def test_a_drafter_that_is_never_right_loses_and_the_report_says_so(run: Any, folders: Path, prompts: Path) -> None:
    line = ("bench", folders / "random", "--heads", folders / "noise", "--prompts", prompts, "--dtype", "float32")
    ran = run(*line, "--depths", "2", "--max-tokens", 24, "--repeats", 1, "--num-prompts", 1)
    assert ran.code == 0
    assert "Best depth: 0. Drafting does not pay here: depth 2 runs at 0." in ran.out


def test_without_heads_only_plain_decoding_is_measured(run: Any, folders: Path, prompts: Path) -> None:
    ran = run("bench", folders / "cycle", "--prompts", prompts, "--max-tokens", 4, "--repeats", 1)
    assert ran.code == 0 and "hint: this model has no heads" in ran.err and "Best depth" not in ran.out
    ran = run("bench", folders / "cycle", "--prompts", prompts, "--depths", "0,1")
    assert ran.code == 2 and "--depths" in ran.err


def test_default_depths_stop_where_the_heads_do(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    line = ("bench", folders / "cycle", "--heads", folders / "two", "--prompts", prompts, "--num-prompts", 1)
    assert run(*line, "--max-tokens", 4, "--repeats", 1, "--json", out).code == 0
    assert sorted({r["depth"] for r in json.loads(out.read_text())["runs"]}) == [0, 1, 2]


def test_another_kind_of_file_is_refused_before_any_work(run: Any, folders: Path, prompts: Path) -> None:
    ran = run("bench", folders / "cycle", "--prompts", prompts, "--json", prompts)
    assert ran.code == 2 and "--json" in ran.err


def test_another_drafter_is_named_and_its_memory_counted(
    run: Any, folders: Path, prompts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "bench.json"
    line = ("bench", folders / "cycle", "--prompts", prompts, "--dtype", "float32", "--max-tokens", 60)
    rest = ("--depths", "0,3", "--repeats", 1, "--num-prompts", 1, "--json", out)
    memory = {}
    for given in (("--drafter", "ngram"), ("--draft-model", folders / "cycle")):
        ran = run(*line, *given, *rest)
        assert ran.code == 0 and "hint" not in ran.err
        plain, drafted = json.loads(out.read_text())["runs"][:2]
        assert plain["drafter"] is None and plain["extra_memory_bytes"] == 0
        assert drafted["drafter"] == ("ngram" if given[0] == "--drafter" else "model")
        assert drafted["mean_acceptance_length"] > 3.5 and f"drafter {drafted['drafter']}." in ran.out
        memory[drafted["drafter"]] = drafted["extra_memory_bytes"]
    assert 1000 < memory["ngram"] < 100_000 < memory["model"]


def test_many_requests_at_a_time_with_policy_and_trees(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    line = ("bench", folders / "cycle", "--heads", folders / "right", "--prompts", prompts, "--dtype", "float32")
    rest = ("--depths", "2,auto", "--nodes", "3", "--max-tokens", 9, "--repeats", 1, "--reference", "--json", out)
    ran = run(*line, "--batch", "2,1", *rest)
    assert ran.code == 0
    data = json.loads(out.read_text())
    assert all(set(r) >= RUN_FIELDS for r in data["runs"])
    ours = [("foretell", 0, 0), ("foretell", 2, 0), ("foretell", 3, 0), ("foretell", 2, 3)]
    ours += [("foretell", "auto", 0), ("foretell", "auto", 3)]
    keys = {b: [(r["system"], r["depth"], r["num_nodes"]) for r in data["runs"] if r["batch"] == b] for b in (1, 2)}
    assert keys[1] == [*ours, ("transformers", 0, 0)] * 3  # all, letters, code
    assert keys[2] == [*ours, ("transformers", 0, 0), ("transformers generate_batch", 0, 0)]  # too few for a domain
    assert {(r["batch"], r["mode"]) for r in data["runs"]} == {(1, "decode"), (2, "end-to-end")}
    assert [b["batch"] for b in data["batches"]] == [1, 2] and data["differences"] == []
    for batch, name, places in ((0, "letters, 1 prompt", [0]), (1, "mixed, 3 prompts", [0, 1, 2])):
        cold = data["batches"][batch]["cold_start"]
        assert cold["name"] == name and cold["prompts"] == places and cold["speedup"] > 0
        assert f"cold start ({name}; not counted)" in ran.out
    assert data["batches"][1]["num_plain_texts_unlike_batch_1"] == 0
    assert data["batches"][1]["num_texts_unlike_depth_0"] == {
        "foretell": 0,
        "transformers": 0,
        "transformers generate_batch": 0,
    }
    assert {(c["batch"], c["rows"], c["nodes"]) for c in data["step_costs"]["pass"]} >= {(1, 1, 1), (2, 2, 2)}
    assert set(data["environment"]["load"]) == {
        *("load_average_start", "load_average_end", "cores_of_others", "note", "busy_after_s"),
    }
    for text in ("Depth auto: ", "Tree of 3 nodes, depth 2: ", "A pass over 2 rows and no draft takes "):
        assert text in ran.out
    assert "Text of transformers generate_batch equal to depth 0: 3 of 3" in ran.out
    assert ran.out.count("Text equal to depth 0: 15 of 15.") == 2


def test_a_batch_alone(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    line = ("bench", folders / "cycle", "--prompts", prompts, "--batch", "3", "--depths", "0", "--max-tokens", 3)
    assert run(*line, "--repeats", 1, "--json", out).code == 0
    data = json.loads(out.read_text())
    assert [(r["domain"], r["num_prompts"]) for r in data["runs"]] == [("all", 3)]
    assert data["batches"][0]["num_plain_texts_unlike_batch_1"] is None and data["best_depth"] == 0


def run_of(
    depth: object, speedup: float | None, num_nodes: int = 0, best: float | None = None, domain: str = "all"
) -> Any:
    spreads = {
        "speedup": speedup and Spread(speedup, speedup, speedup),
        "speedup_over_best_fixed": best and Spread(best, best, best),
    }
    values = dict.fromkeys((f.name for f in fields(RunSummary)), None)
    own = {"system": "foretell", "domain": domain, "depth": depth, "num_nodes": num_nodes}
    return RunSummary(**{**values, **own, **spreads})


def test_a_policy_that_loses_is_named() -> None:
    runs = [run_of(0, 1.0), run_of(2, 1.2), run_of("auto", 1.15, best=0.96)]
    chat = {"domain": "chat"}
    runs += [run_of(0, 1.0, **chat), run_of(2, 1.2, **chat), run_of("auto", 0.9, best=0.75, **chat)]
    lines = _policy(BenchReport(runs, [], {}, []))
    assert lines == [
        "Depth auto: 1.15x (one pair) of depth 0, 0.96x (one pair) of the best fixed depth (2).",
        "Depth auto is more than 5 % slower than depth 0 on: chat (0.90x).",
        "Depth auto is more than 5 % slower than the best fixed depth on: chat (0.75x).",
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--batch", "0,2"), '--batch: "0,2" is not allowed; give integers of at least 1'),
        (("--batch", "two"), '--batch: "two"'),
        (("--batch", "4"), "--batch: a batch of 4 needs at least 4 prompts, better 8, and there are 3"),
        (("--nodes", "1"), '--nodes: "1" is not allowed; give integers of at least 2'),
        (("--nodes", "2", "--depths", "2,3"), "--nodes: 2 nodes at depths 2, 3 are no tree"),
        (("--batch", "1,513"), '--batch: "1,513" is not allowed; give integers of at least 1 and at most 512'),
        (("--nodes", "100000"), "at most 512"),
        (("--nodes", "4", "--depths", "0"), "--nodes: 4 nodes at no fixed depth above 0 are no tree"),
        (("--max-tokens", "1"), '--max-tokens: "1" is not allowed; give an integer >= 2'),
        (("--nodes", "4", "--drafter", "ngram"), "--nodes: look-up (ngram) drafts chains"),
    ],
)
def test_options_that_do_not_fit(run: Any, folders: Path, prompts: Path, given: tuple[str, ...], says: str) -> None:
    ran = run("bench", folders / "cycle", "--heads", folders / "right", "--prompts", prompts, *given)
    assert ran.code == 2 and says in ran.err and ran.err.count("error:") == 1


def test_a_single_domain_is_shown_once_and_nothing_trails(run: Any, folders: Path, prompts: Path) -> None:
    line = ("bench", folders / "cycle", "--heads", folders / "right", "--prompts", prompts, "--max-tokens", 4)
    ran = run(*line, "--num-prompts", 1, "--repeats", 1, "--depths", 1, "--batch", 1)
    assert ran.code == 0 and "letters" not in ran.out
    assert ran.out.endswith("drafter heads.\n") and "1 repeat," in ran.out and "1 threads" not in ran.out
    assert "Speed-up: the median of ratios to depth 0 on the same prompt in the same repeat" in ran.out


def test_depth_0_alone_is_pointed_out(run: Any, folders: Path, prompts: Path) -> None:
    line = ("bench", folders / "cycle", "--heads", folders / "right", "--prompts", prompts, "--max-tokens", 4)
    ran = run(*line, "--num-prompts", 1, "--repeats", 1, "--depths", 0)
    assert ran.code == 0 and "hint: depth 0 is plain decoding" in ran.err and "Best depth" not in ran.out


def test_batch_sizes_that_are_done_are_kept(
    run: Any, monkeypatch: pytest.MonkeyPatch, folders: Path, prompts: Path, tmp_path: Path
) -> None:
    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("foretell.analysis.batch_bench.run_batch_bench", interrupted)
    out = tmp_path / "bench.json"
    line = ("bench", folders / "cycle", "--heads", folders / "right", "--prompts", prompts, "--max-tokens", 4)
    ran = run(*line, "--repeats", 1, "--depths", 1, "--batch", "1,2", "--json", out)
    data = json.loads(out.read_text())
    assert ran.code == 130 and "Best depth" in ran.out and ran.err.endswith("error: interrupted\n")
    assert data["incomplete"] and [batch["batch"] for batch in data["batches"]] == [1]


def test_the_best_of_all_settings_is_named() -> None:
    chains = [run_of(0, 1.0), run_of(2, 1.5)]
    for runs, says in (
        (chains, "Best depth: 2, 1.50x (one pair) of depth 0."),
        (
            [*chains, run_of(2, 1.7, 6)],
            "Best depth: 2, 6 nodes, 1.70x (one pair) of depth 0; best chain: depth 2, 1.50x",
        ),
        ([*chains, run_of("auto", 1.6)], "Best depth: auto, 1.60x (one pair) of depth 0; best chain: depth 2, 1.50x"),
        ([run_of(0, 1.0), run_of(2, 0.8), run_of(2, 0.9, 6)], "depth 2, 6 nodes runs at 0.90x"),
        ([run_of(0, 1.0), run_of(2, 0.8), run_of(2, 1.2, 6)], "of depth 0; best chain: depth 0."),
        ([run_of(0, 1.0), run_of(2, None)], "No speed-up was measured"),
    ):
        [line] = _best(BenchReport(runs, [], {}, []))
        assert says in line
    assert _best(BenchReport([run_of(0, 1.0)], [], {}, [])) == []


def test_trees_need_heads(run: Any, folders: Path, prompts: Path) -> None:
    ran = run("bench", folders / "cycle", "--prompts", prompts, "--nodes", "4", "--depths", "2")
    assert ran.code == 2 and "no heads" in ran.err


def test_a_bench_on_noise_says_so(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    """C42: a random model finds the prompts no likelier than chance; the numbers stand, with a warning."""
    out = tmp_path / "bench.json"
    line = ("bench", folders / "random", "--heads", folders / "noise", "--prompts", prompts, "--dtype", "float32")
    ran = run(*line, "--depths", "1", "--max-tokens", 8, "--repeats", 1, "--json", out)
    data = json.loads(out.read_text())
    assert ran.code == 0 and data["warnings"] and f"warning: {data['warnings'][0]}" in ran.err
    samples = [s for s in data["samples"] if s["depth"] == 1]
    assert [(s["batch"], s["prompt"], s["num_tokens"]) for s in samples] == [(1, i, [8]) for i in range(3)]
