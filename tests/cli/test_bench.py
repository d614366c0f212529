from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RUN_FIELDS = {
    *("system", "drafter", "depth", "batch", "domain", "dtype", "num_prompts", "num_output_tokens"),
    *("decode_tokens_per_s", "speedup", "mean_acceptance_length", "acceptance_by_depth", "time_share"),
    "extra_memory_bytes",
}
ENVIRONMENT_FIELDS = {"cpu", "cores", "torch", "transformers", "foretell", "threads", "date", "dtype", "command"}


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
