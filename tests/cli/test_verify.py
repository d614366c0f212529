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
    assert len(laws) == 15 and {law["depth"] for law in laws} == {0, 1, 3}


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
