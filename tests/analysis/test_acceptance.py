"""The numbers of a run whose accepted drafts are known in advance."""

from __future__ import annotations

import pytest

from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.models.mtp_model import MTPModel
from foretell.types import AcceptanceStats
from tests.fixtures import EOS, encode, script_trunk, scripted_heads

ALPHABET = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module")
def abc() -> MTPModel:
    trunk = script_trunk(f">{ALPHABET}<eos>")
    return MTPModel(trunk, scripted_heads(trunk, "mixed", wrong_after=encode("cdjrstx")))


@pytest.mark.parametrize(
    ("depth", "per_round", "rate"),
    [
        (1, [1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1], 11 / 15),
        (2, [2, 0, 2, 2, 2, 2, 1, 0, 0, 2, 0, 2], 15 / 24),
        (3, [2, 0, 3, 1, 3, 3, 0, 0, 3, 2], 17 / 30),
    ],
)
def test_abc_run(abc: MTPModel, monkeypatch: pytest.MonkeyPatch, depth: int, per_round: list[int], rate: float) -> None:
    counted: list[tuple[int, int]] = []
    count = AcceptanceStats.count

    def spy(stats: AcceptanceStats, depth: int, num_accepted: int, num_drafted: int) -> None:
        assert num_drafted == depth  # a chain
        if num_drafted:
            counted.append((num_drafted, num_accepted))
        count(stats, depth, num_accepted, num_drafted)

    monkeypatch.setattr(AcceptanceStats, "count", spy)
    [done] = Engine(abc).generate([">"], SamplingParams(max_tokens=60), depth=depth)
    assert (done.text, done.finish_reason) == (ALPHABET, "stop")
    assert done.token_ids == [*encode(ALPHABET), EOS]
    assert [accepted for _, accepted in counted] == per_round
    assert {drafted for drafted, _ in counted} == {depth}
    assert (done.stats.num_drafts, done.num_rounds) == (len(per_round), len(per_round) + 1)  # and the prefill
    assert done.stats.num_accepted_tokens == sum(per_round)
    assert done.stats.num_draft_tokens == depth * len(per_round)
    assert done.stats.acceptance_rate == pytest.approx(rate)
    assert done.stats.mean_acceptance_length == pytest.approx(1 + sum(per_round) / len(per_round))
    assert done.origins.count("accepted") == sum(per_round)


@pytest.mark.parametrize(("kind", "rate", "length"), [("wrong", 0.0, 1.0), ("perfect", 1.0, 4.0)])
def test_always_wrong_and_always_right(kind: str, rate: float, length: float) -> None:
    trunk = script_trunk(ALPHABET + "a")
    model = MTPModel(trunk, scripted_heads(trunk, kind))  # type: ignore[arg-type]
    [done] = Engine(model).generate(["a"], SamplingParams(max_tokens=25), depth=3)
    assert done.stats.acceptance_rate == rate
    assert done.stats.mean_acceptance_length == length


def test_accept_list() -> None:
    stats = AcceptanceStats()
    for accepted in (3, 0, 1, 3, 2, 0, 3, 1):
        stats.count(3, accepted)
    assert (stats.num_accepted_tokens, stats.num_draft_tokens) == (13, 24)
    assert stats.acceptance_rate == pytest.approx(0.5417, abs=1e-4)
    assert stats.mean_acceptance_length == 2.625
    assert stats.acceptance_by_depth == [0.75, 0.5, 0.375]
    assert stats.conditional_acceptance_by_depth == pytest.approx([0.75, 2 / 3, 0.75])


def test_no_rounds_is_not_zero() -> None:
    stats = AcceptanceStats()
    stats.count(0, 0)
    assert stats.acceptance_rate is None and stats.mean_acceptance_length is None
    assert stats.acceptance_by_depth == []
