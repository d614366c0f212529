from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from foretell.decoding import judge
from foretell.types import Draft, Verdict


def line(folders: Path, prompts: Path) -> tuple[object, ...]:
    return ("verify", folders / "random", "--heads", folders / "noise", "--prompts", prompts, "--max-tokens", 16)


def test_equal_texts_pass(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    ran = run(*line(folders, prompts), "--json", tmp_path / "out.json")
    assert ran.code == 0 and ran.out.endswith("PASSED\n")
    assert "12 of 12 texts equal to depth 0 (3 prompts" in ran.out and "depths 1, 2, 3, 4" in ran.out
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["passed"] and data["greedy"]["num_texts"] == 12 and data["greedy"]["differences"] == []


def test_a_verifier_that_accepts_everything_is_found(
    run: Any, folders: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def accept_all(draft: Draft, argmax_ids: Sequence[int]) -> Verdict:
        return Verdict(list(range(len(draft))), argmax_ids[-1], True)

    monkeypatch.setattr(judge, "verify_greedy", accept_all)
    ran = run(*line(folders, prompts), "--depths", "2")
    assert ran.code == 1 and ran.out.endswith("FAILED\n")
    assert "BUG: prompt 0 (letters), depth 2, output token 1: expected" in ran.out and "top-2 gap" in ran.out


def test_nothing_to_verify(run: Any, folders: Path, prompts: Path) -> None:
    ran = run("verify", folders / "cycle", "--prompts", prompts)
    assert ran.code == 2 and "no heads" in ran.err
    ran = run(*line(folders, prompts), "--depths", "0")
    assert ran.code == 2 and "--depths" in ran.err


def test_sampling_law(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = run("verify", "--sampling", "--samples", 200, "--json", tmp_path / "out.json")
    assert ran.code == 0 and ran.out.endswith("PASSED\n")
    laws = json.loads((tmp_path / "out.json").read_text())["sampling"]
    shapes = {(law["depth"], law["num_nodes"]) for law in laws}
    assert len(laws) == 20 and shapes == {(0, 0), (1, 0), (3, 0), (2, 5)}


def test_other_drafters(run: Any, folders: Path, prompts: Path) -> None:
    """Greedy text with look-up and with a draft model, and the law of samples with a built-in one."""
    line = ("verify", folders / "random", "--prompts", prompts, "--max-tokens", 8, "--depths", 2)
    ran = run(*line, "--drafter", "ngram")
    assert ran.code == 0 and "3 of 3 texts equal to depth 0" in ran.out and "PASSED" in ran.out
    ran = run(*line, "--draft-model", folders / "random", "--drafter", "ngram+model")
    assert ran.code == 0 and "3 of 3 texts equal to depth 0" in ran.out
    for kind in ("ngram", "model"):
        ran = run("verify", "--sampling", "--samples", 500, "--drafter", kind)
        assert ran.code == 0 and "acceptance 0." in ran.out


def test_trees_batches_and_exact(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    ran = run(*line(folders, prompts), "--nodes", 4, "--batch", 2, "--json", out)
    assert ran.code == 0 and ran.out.endswith("PASSED\n")
    assert "greedy: 9 of 9 texts equal to depth 0" in ran.out and "depths 1, 2, 3, trees of 4 nodes" in ran.out
    assert "batch of 2: 12 of 12 texts equal to their single runs (depths 0, 1, 2, 3" in ran.out
    found = json.loads(out.read_text())["greedy"]
    assert (found["num_nodes"], found["exact"], found["batch"]["num_rows"]) == (4, False, 2)
    assert found["batch"]["num_accepted_tokens"] == found["batch"]["num_accepted_alone"]


def test_exact_in_a_batch(run: Any, folders: Path, prompts: Path) -> None:
    ran = run(*line(folders, prompts), "--exact", "--batch", 3, "--depths", "1,auto")
    assert ran.code == 0 and "greedy, exact: 6 of 6 texts" in ran.out and "batch of 3: 9 of 9 texts" in ran.out


def test_exact_excuses_nothing(run: Any, folders: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge that takes the second-best token of a tie is a near tie to the eye, and a failure to --exact."""
    right = judge.verify_greedy

    def off_by_one(draft: Draft, argmax_ids: Sequence[int]) -> Verdict:
        verdict = right(draft, argmax_ids)
        return Verdict(verdict.path, verdict.next_token ^ 1, False) if len(draft) else verdict

    monkeypatch.setattr(judge, "verify_greedy", off_by_one)
    monkeypatch.setattr("foretell.analysis.lossless.near_tie_gap", lambda dtype, best: 1e9)
    excused = run(*line(folders, prompts), "--depths", 1)
    assert excused.code == 0 and "near tie: prompt 0" in excused.out
    ran = run(*line(folders, prompts), "--depths", 1, "--exact")
    assert ran.code == 1 and "BUG: prompt 0" in ran.out and "exact: nothing is excused" in ran.out


def test_depth_auto(run: Any, folders: Path, prompts: Path) -> None:
    ran = run(*line(folders, prompts), "--depths", "2,auto")
    assert ran.code == 0 and "6 of 6 texts" in ran.out and "depths 2, auto" in ran.out


@pytest.mark.parametrize(
    "given",
    [
        ("--heads", "h"),
        ("--draft-model", "m"),
        ("--prompts", "p.jsonl"),
        ("--exact",),
        ("--controls",),
        ("--params", "top_k=3"),
        ("--batch", 2),
        ("--max-tokens", 64),
        ("--num-prompts", 1),
        ("--dtype", "float32"),
    ],
)
def test_the_law_of_samples_takes_no_other_option(run: Any, given: tuple[object, ...]) -> None:
    ran = run("verify", "--sampling", *given)
    assert (ran.code, ran.out) == (2, "") and f"MODEL: {given[0]} is for a model of yours" in ran.err


def test_samples_need_sampling(run: Any) -> None:
    ran = run("verify", "m", "--samples", 500)
    assert ran.code == 2 and "--samples: 500" in ran.err and "--sampling" in ran.err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--nodes", 3, "--depths", "1,3"), ["--nodes: 3 nodes at depth 3", "at least 4"]),
        (("--exact", "--depths", "8"), ["--exact", "at most 7"]),
        (("--exact", "--nodes", 5), ["--nodes", "exact"]),
    ],
)
def test_what_does_not_fit(run: Any, folders: Path, prompts: Path, given: tuple[object, ...], words: list[str]) -> None:
    ran = run(*line(folders, prompts), *given)
    assert (ran.code, ran.out) == (2, "") and all(word in ran.err.splitlines()[-1] for word in words)


def test_trees_of_the_built_in_model(run: Any, tmp_path: Path) -> None:
    """A tree beside the chains by default; with --depths and --nodes what they say."""
    ran = run(
        "verify", "--sampling", "--samples", 200, "--depths", "0,2", "--nodes", 5, "--json", tmp_path / "out.json"
    )
    laws = json.loads((tmp_path / "out.json").read_text())["sampling"]
    assert ran.code == 0 and {(law["depth"], law["num_nodes"]) for law in laws} == {(0, 0), (2, 5)}
    assert "depth 2, 5 nodes, temperature=1" in ran.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--params", "n=2"), "--params n: 2 texts a prompt"),
        (("--controls", "--max-tokens", 2), "--max-tokens: in 2 tokens nothing can be drafted"),
    ],
)
def test_what_is_no_proof_is_refused(
    run: Any, folders: Path, prompts: Path, options: tuple[object, ...], message: str
) -> None:
    ran = run("verify", folders / "cycle", "--heads", folders / "right", "--prompts", prompts, *options)
    assert ran.code == 2 and message in ran.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--depths", "auto"), "--depths: auto is no fixed depth"),
        (("--depths", "3", "--nodes", 3), "--nodes"),
        (("--depths", "2", "--nodes", 5, "--drafter", "ngram"), "--nodes: ngram drafts chains here"),
    ],
)
def test_shapes_that_the_built_in_model_does_not_take(run: Any, options: tuple[object, ...], message: str) -> None:
    ran = run("verify", "--sampling", *options)
    assert ran.code == 2 and message in ran.err


def test_a_proof_on_texts_that_mean_nothing_says_so(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    """C42: prompts that the model finds as likely as noise; texts that go in circles; a sound run says nothing."""
    out = tmp_path / "out.json"
    ran = run(*line(folders, prompts), "--depths", 1, "--json", out)
    [found] = json.loads(out.read_text())["warnings"]
    assert (
        ran.code == 0 and found.startswith("the model finds the prompts no likelier") and f"warning: {found}" in ran.err
    )
    sound = ("verify", folders / "cycle", "--heads", folders / "right", "--prompts", prompts, "--depths", 1)
    ran = run(*sound, "--max-tokens", 60, "--json", out)
    [found] = json.loads(out.read_text())["warnings"]
    assert ran.code == 0 and "3 of 3 outputs, and most of their tokens, repeat themselves" in found
    ran = run(*sound, "--max-tokens", 12, "--json", out)
    assert ran.code == 0 and json.loads(out.read_text())["warnings"] == [] and "warning" not in ran.err
    ran = run(*sound, "--max-tokens", 12, "--params", "ignore_eos=true")
    assert ran.code == 0 and "warning: EOS was ignored" in ran.err


def test_controls_rules_and_law_of_a_model(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    """One command checks greedy text under rules, the meter, and samples; the file says on what machine."""
    out = tmp_path / "out.json"
    options = ("--controls", "--sampling", "--samples", 200, "--params", "repetition_penalty=1.1", "--json", out)
    ran = run(*line(folders, prompts), "--depths", "2", *options)
    assert ran.code == 0, ran
    found = json.loads(out.read_text())
    assert found["passed"] and found["environment"]["dtype"] == "float32" and found["model"] == "random"
    assert [c["kind"] for c in found["controls"]] == ["right", "shifted", "shuffled"]
    assert found["controls"][0]["acceptance"] == 1.0
    assert [law["depth"] for law in found["model_law"]] == [0, 2]
    assert "ok: right (the text itself): 1.000" in ran.out and "draws of the trunk's own law" in ran.out
