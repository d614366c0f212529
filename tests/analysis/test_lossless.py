from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from foretell.analysis.lossless import check_greedy_equality, explain, near_tie_gap
from foretell.analysis.texts import BenchPrompt
from foretell.decoding import judge
from foretell.models.mtp_model import MTPModel
from foretell.types import Draft, Verdict
from tests.fixtures import encode, script_trunk, scripted_heads

CYCLE = "abcdefghijklmnopqrstuvwxyza"
PROMPT = BenchPrompt("chat", encode("a"))


def test_equal_texts() -> None:
    trunk = script_trunk(CYCLE)
    seen: list[tuple[int, int]] = []
    model = MTPModel(trunk, scripted_heads(trunk, "mixed", wrong_after=encode("dj")))
    report = check_greedy_equality(model, [PROMPT] * 2, [1, 3], 20, on_progress=lambda a, b: seen.append((a, b)))
    assert report.passed and report.differences == []
    assert (report.num_prompts, report.num_texts, report.num_tokens) == (2, 4, 40)
    assert report.num_accepted_tokens > 20 and seen == [(1, 2), (2, 2)]


def test_a_verifier_that_accepts_everything_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def accept_all(draft: Draft, argmax_ids: Sequence[int]) -> Verdict:
        return Verdict(list(range(len(draft))), argmax_ids[-1], True)

    monkeypatch.setattr(judge, "verify_greedy", accept_all)
    trunk = script_trunk(CYCLE)
    report = check_greedy_equality(MTPModel(trunk, scripted_heads(trunk, "wrong")), [PROMPT], [1, 2], 20)
    assert not report.passed
    first = report.differences[0]
    assert (first.depth, first.position, first.verdict) == (1, 1, "BUG")
    assert (first.expected_text, first.got_text) == ("c", "b")  # always one token late
    assert first.gap == pytest.approx(16.1, abs=0.1)


@pytest.mark.parametrize(("gap", "verdict"), [(5e-5, "near tie"), (1e-2, "BUG")])
def test_only_a_near_tie_excuses(gap: float, verdict: str) -> None:
    """After "a" the trunk says "b", and "c" is ``gap`` behind."""
    trunk = script_trunk("ab")
    [a, b, c] = encode("abc")
    with torch.no_grad():
        trunk.output_head.weight[c, a] = 1.0 - gap / 260**0.5
    found = explain(trunk, BenchPrompt("x", [a]), [b], [c], 0, 1)
    assert found.gap == pytest.approx(gap, rel=0.05)
    assert found.verdict == verdict


def test_limits_by_type() -> None:
    assert near_tie_gap(torch.float32, 30.0) == near_tie_gap(torch.float64, 30.0) == 1e-4
    assert near_tie_gap(torch.bfloat16, 3.0) == near_tie_gap(torch.bfloat16, 0.0) == 0.05
    assert near_tie_gap(torch.float16, 30.0) == 0.05
    assert near_tie_gap(torch.bfloat16, 8.0) == near_tie_gap(torch.bfloat16, -15.9) == 2 / 16
    assert near_tie_gap(torch.bfloat16, 16.0) == 2 / 8
    assert near_tie_gap(torch.float16, 64.0) == 2 / 16


@pytest.mark.parametrize(("steps", "verdict"), [(0.9, "near tie"), (1.5, "near tie"), (2.5, "BUG")])
def test_half_precision_excuses_two_of_its_steps(steps: float, verdict: str) -> None:
    """The best logit is 14, where bf16 logits lie 1/16 apart; the gap is seen though bf16 itself would round it."""
    trunk = script_trunk("ab")
    [a, b, c, z] = encode("abcz")
    trunk.model.bfloat16()
    with torch.no_grad():
        trunk.model.model.embed_tokens.weight[a, z] = 1 / 32  # the state is 16.1 at a and 0.5 at z
        trunk.output_head.weight[[b, c], a] = 14 / 16.1
        trunk.output_head.weight[c, z] = -steps / 16 / 0.5
    found = explain(trunk, BenchPrompt("x", [a]), [b], [c], 0, 1)
    assert found.gap == pytest.approx(steps / 16, rel=0.05) and found.gap % (1 / 16) != 0
    assert (found.limit, found.verdict) == (2 / 16, verdict)


def test_a_tie_of_two_does_not_excuse_a_third_or_an_end() -> None:
    trunk = script_trunk("ab")
    [a, b, c, d] = encode("abcd")
    with torch.no_grad():
        trunk.output_head.weight[c, a] = 1.0
    prompt = BenchPrompt("x", [a])
    assert explain(trunk, prompt, [b], [c], 0, 1).verdict == "near tie"
    assert explain(trunk, prompt, [b], [d], 0, 1).verdict == "BUG"
    ended = explain(trunk, prompt, [b], [], 0, 1)
    assert (ended.verdict, ended.got_token, ended.got_text) == ("BUG", None, "(end)")


def test_exact_excuses_nothing() -> None:
    trunk = script_trunk("ab")
    [a, b, c] = encode("abc")
    with torch.no_grad():
        trunk.output_head.weight[c, a] = 1.0
    found = explain(trunk, BenchPrompt("x", [a]), [b], [c], 0, 1, exact=True)
    assert (found.gap, found.limit, found.verdict) == (0.0, 0.0, "BUG")


def test_a_batch_is_held_against_single_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of different length and acceptance; then a judge that is wrong only where several rows share a step."""
    trunk = script_trunk(CYCLE)
    model = MTPModel(trunk, scripted_heads(trunk, "mixed", wrong_after=encode("dj")))
    prompts = [BenchPrompt("chat", encode(text)) for text in ("a", "fgh", "x")]
    report = check_greedy_equality(model, prompts, [0, 2, "auto"][1:], 12, num_nodes=0, batch=2)
    assert report.passed and report.batch is not None
    assert (report.batch.num_rows, report.batch.num_texts) == (2, 9)
    fixed = check_greedy_equality(model, prompts, [2], 12, num_nodes=4, batch=3).batch
    assert fixed is not None and fixed.num_accepted_tokens == fixed.num_accepted_alone > 0

    right = judge._verdicts

    def wrong_in_batches(rows: Any, drafts: Any, logits: Any) -> list[Verdict]:
        verdicts = right(rows, drafts, logits)
        if len(rows) > 1:
            verdicts[-1].next_token = encode("q")[0]
        return verdicts

    monkeypatch.setattr(judge, "_verdicts", wrong_in_batches)
    report = check_greedy_equality(model, prompts, [1], 6, batch=3)
    assert report.differences == [] and not report.passed
    assert report.batch is not None and {d.batch for d in report.batch.differences} == {3}
    assert report.batch.differences[0].got_text == "q"
