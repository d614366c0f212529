"""Controls and likely causes: the meter says what is known, and a broken engine is found and described."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from foretell.analysis.causes import likely_cause
from foretell.analysis.controls import Control, check_controls
from foretell.analysis.lossless import check_greedy_equality
from foretell.analysis.texts import BenchPrompt
from foretell.config import SamplingParams
from foretell.decoding import judge
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Draft, Verdict
from tests.fixtures import byte_tokenizer, random_heads, script_trunk, tiny_llama, tiny_qwen3_next

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def counting() -> MTPModel:
    return MTPModel(script_trunk(LETTERS + "a", max_positions=64))


def letters(*texts: str) -> list[BenchPrompt]:
    tokenizer = byte_tokenizer()
    return [BenchPrompt("x", tokenizer(text, add_special_tokens=False).input_ids) for text in texts]


def test_known_acceptance() -> None:
    """A text of different letters: the text itself is always right, one place too early never."""
    right, shifted, shuffled = check_controls(counting(), letters("a", "mn"), 20)
    assert (right.kind, right.acceptance, shifted.acceptance) == ("right", 1.0, 0.0)
    assert shuffled.acceptance is not None and shuffled.acceptance < 0.3 and shuffled.acceptance == shuffled.expected
    assert all(control.passed and not control.differences for control in (right, shifted, shuffled))


def accept_all(draft: Draft, argmax_ids: Sequence[int]) -> Verdict:
    return Verdict(list(range(len(draft))), argmax_ids[-1], True)


def accept_none(draft: Draft, argmax_ids: Sequence[int]) -> Verdict:
    return Verdict([], argmax_ids[0], False)


def test_a_verifier_that_keeps_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "verify_greedy", accept_all)
    right, shifted, shuffled = check_controls(counting(), letters("a"), 20)
    assert right.passed and not shifted.passed and not shuffled.passed
    assert shifted.differences[0].verdict == "BUG" and "a drafted token was kept" in shifted.differences[0].cause


def test_a_verifier_that_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text is right, so equality alone sees nothing: the control does."""
    monkeypatch.setattr(judge, "verify_greedy", accept_none)
    right, *_ = check_controls(counting(), letters("a"), 20)
    assert right.acceptance == 0 and not right.differences and not right.passed


def test_nothing_drafted_is_no_pass() -> None:
    assert not Control("right", None, None, 1).passed and not Control("shuffled", 0.5, None, 1).passed


@pytest.mark.parametrize("text", ["aabbaabb", "abcabc"])
@pytest.mark.parametrize("batch", [1, 2])
def test_texts_that_repeat_themselves(text: str, batch: int) -> None:
    """A shift is often right there, and the meter has to say just how often; many rows at a time, under rules."""
    trunk = Trunk(tiny_llama(), byte_tokenizer(), name="tiny")
    rules = SamplingParams(max_tokens=24, frequency_penalty=0.2)
    prompts = letters(text, text[::-1], text[1:])
    for control in check_controls(MTPModel(trunk), prompts, 24, 3, batch=batch, params=rules):
        assert control.passed and not control.differences, control


def test_greedy_under_rules_stays_equal_and_is_judged_under_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Penalties and bans change the text, not its equality; the gap of a difference is that of the ruled logits."""
    trunk = Trunk(tiny_llama(), byte_tokenizer(), name="tiny")
    model = MTPModel(trunk, random_heads(trunk))
    prompts = [BenchPrompt("x", [1, 2, 3])]
    rules = SamplingParams(repetition_penalty=1.4, frequency_penalty=0.5, logit_bias={42: -100.0})
    report = check_greedy_equality(model, prompts, [1, 3], 24, params=rules, batch=2, num_nodes=0)
    assert report.passed and not report.differences and report.num_texts == 2
    monkeypatch.setattr(judge, "verify_greedy", accept_all)
    report = check_greedy_equality(model, prompts, [1], 24, params=rules)
    assert not report.passed and report.differences[0].verdict == "BUG"


def logits(**at: float) -> torch.Tensor:
    values_V = torch.zeros(8)
    for name, value in at.items():
        values_V[int(name[1:])] = value
    return values_V


@pytest.mark.parametrize(
    ("expected", "got", "best", "batch", "words"),
    [
        (None, 3, 3, 1, "end of the text"),
        (3, None, 3, 1, "end of the text"),
        (1, 2, 5, 1, "both texts leave what a fresh pass says"),
        (1, 2, 2, 1, "the text that is compared with leaves what a fresh pass"),
        (1, 2, 1, 1, "a drafted token was kept"),
        (1, 2, 1, 4, "rows of the batch see each other"),
    ],
)
def test_causes(expected: int | None, got: int | None, best: int, batch: int, words: str) -> None:
    trunk = counting().trunk
    logits_V = logits(**{f"t{best}": 5.0})
    assert words in likely_cause(trunk, logits_V, expected, got, 5.0, 1e-4, batch, False)
    assert "rounding" in likely_cause(trunk, logits_V, expected, got, 0.0, 1e-4, batch, True)


def test_causes_of_recurrent_and_of_half_trunks() -> None:
    hybrid = Trunk(tiny_qwen3_next(), name="hybrid")
    assert "recurrent state" in likely_cause(hybrid, logits(t1=5.0), 1, 2, 5.0, 1e-4, 1, False)
    half = Trunk(tiny_llama().bfloat16(), name="half")
    assert "--dtype float32" in likely_cause(half, logits(t1=5.0), 1, 2, 0.2, 0.05, 1, False)
