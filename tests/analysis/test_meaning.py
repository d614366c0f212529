"""Measurements that mean nothing are told from sound ones, each for its own reason."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from foretell.analysis.meaning import meaningless, repeated_share, short_text, trained_on

PROMPTS = [list(range(i, i + 20)) for i in range(0, 100, 10)]
OUTPUTS = [list(range(i, i + 30)) for i in range(200, 300, 10)]
V = 1000


def reasons(**changed: Any) -> list[str]:
    values: dict[str, Any] = {
        "prompts_token_ids": PROMPTS,
        "completions_token_ids": OUTPUTS,
        "mean_prompt_nll": 3.0,
        "vocab_size": V,
        "eos_ignored": False,
    }
    return meaningless(**values | changed)


def test_a_sound_run_has_no_reason() -> None:
    assert reasons() == [] and reasons(mean_prompt_nll=None) == [] and reasons(mean_prompt_nll=math.log(V) - 0.01) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"mean_prompt_nll": math.log(V)}, "no likelier than random tokens (6.9 nats a token"),
        ({"mean_prompt_nll": math.inf}, "no likelier"),
        ({"mean_prompt_nll": math.nan}, "no likelier"),
        ({"eos_ignored": True}, "EOS was ignored"),
        ({"completions_token_ids": [[1, 2] * 20] * 6 + OUTPUTS[:4]}, "6 of 10 outputs, and most of their tokens"),
        ({"completions_token_ids": [[5]] * 10}, "one token long"),
        ({"completions_token_ids": [[]] * 10}, "one token long"),
        ({"prompts_token_ids": [[7] * 50 + [i] for i in range(6)] + PROMPTS[:4]}, "6 of 10 prompts repeat themselves"),
        ({"prompts_token_ids": [PROMPTS[0]] * 9 + PROMPTS[1:2]}, "10 prompts are 2 different ones"),
    ],
)
def test_each_reason_alone(changed: dict[str, Any], words: str) -> None:
    [found] = reasons(**changed)
    assert words in found and "\n" not in found


@pytest.mark.parametrize(
    "changed",
    [
        {"completions_token_ids": [[1, 2] * 20] * 3 + OUTPUTS[:7]},  # three of ten, and less than half of the tokens
        {"completions_token_ids": [[1] * 7] * 8 + [list(range(100))] * 2},  # most outputs, but short ones
        {"prompts_token_ids": [PROMPTS[0]] * 5 + PROMPTS[1:6]},
        {"prompts_token_ids": [], "completions_token_ids": [], "mean_prompt_nll": None},
    ],
)
def test_what_is_no_reason(changed: dict[str, Any]) -> None:
    assert reasons(**changed) == []


def test_several_reasons_come_together() -> None:
    assert len(reasons(mean_prompt_nll=9.0, eos_ignored=True, completions_token_ids=[[1] * 20])) == 3


@pytest.mark.parametrize(
    ("token_ids", "share"),
    [([], 0.0), ([1, 2, 3], 0.0), ([1, 2, 3, 4], 0.0), ([1] * 8, 0.8), ([1, 2] * 4, 0.6), (list(range(99)), 0.0)],
)
def test_repeated_share(token_ids: list[int], share: float) -> None:
    """1 - different 4-grams / 4-grams: eight equal tokens have five, all the same."""
    assert repeated_share(token_ids) == pytest.approx(share)


def test_short_text() -> None:
    assert short_text(1000) == [] and "999 bytes" in short_text(999)[0]


@pytest.mark.parametrize(
    ("training", "found"),
    [
        ({"recipe": {"data": {"files": ["data/a.jsonl", "b.jsonl"]}}}, True),
        ({"recipe": {"data": {"files": ["b.jsonl"]}}}, False),
        ({"recipe": {"data": {"files": [3, None]}}}, False),
        ({"recipe": {"data": {"files": "data/a.jsonl"}}}, False),
        ({"recipe": {"data": []}}, False),
        ({"recipe": None}, False),
        ({}, False),
    ],
)
def test_trained_on(training: dict[str, Any], found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given in (Path("data/a.jsonl"), tmp_path / "data" / "x" / ".." / "a.jsonl"):
        assert bool(trained_on([given, "other.jsonl"], training)) == found
    assert trained_on([], training) == []
