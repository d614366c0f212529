"""How much is accepted: the numbers known by hand."""

from __future__ import annotations

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.errors import UsageError
from foretell.models.mtp_model import MTPModel
from foretell.types import AcceptanceStats, Completion
from tests.fixtures import encode, script_trunk, scripted_heads

ALPHABET = ">abcdefghijklmnopqrstuvwxyz<eos>"
MODES = {"unrolled": {}, "distinct": {"unrolled": False, "num_modules": 3, "num_depths": 3}}

# K: rounds' accepted counts; drafted, accepted, rate, mean length
ABC = {
    1: ([1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1], 15, 11, 0.7333, 1.7333),
    2: ([2, 0, 2, 2, 2, 2, 1, 0, 0, 2, 0, 2], 24, 15, 0.6250, 2.2500),
    3: ([2, 0, 3, 1, 3, 3, 0, 0, 3, 2], 30, 17, 0.5667, 2.7000),
}


def accepted_per_round(done: Completion) -> list[int]:
    """From the origins, the first token left out: a round ends with the trunk's own token or with the text."""
    counts = [0]
    for origin in done.origins[1:]:
        if origin == "accepted":
            counts[-1] += 1
        else:
            counts.append(0)
    return counts if done.origins[-1] == "accepted" else counts[:-1]


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_abc_run(depth: int, mode: str) -> None:
    trunk = script_trunk(ALPHABET)
    model = MTPModel(trunk, scripted_heads(trunk, "mixed", wrong_after=encode("cdjrstx"), **MODES[mode]))
    [done] = Engine(model).generate([">"], depth=depth)
    per_round, num_drafted, num_accepted, rate, length = ABC[depth]
    assert accepted_per_round(done) == per_round
    stats = done.stats
    assert (stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens) == (
        len(per_round),
        num_drafted,
        num_accepted,
    )
    assert stats.acceptance_rate == pytest.approx(rate, abs=5e-5)
    assert stats.mean_acceptance_length == pytest.approx(length, abs=5e-5)
    assert stats.accepted_per_position == [sum(n > k for n in per_round) for k in range(depth)]
    assert done.text == ALPHABET[1:27]


def test_counts_from_a_list() -> None:
    stats = AcceptanceStats()
    for num_accepted in (3, 0, 1, 3, 2, 0, 3, 1):
        stats.count(3, num_accepted)
    stats.count(0, 0)  # a round without a draft is no round
    assert (stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens) == (8, 24, 13)
    assert stats.acceptance_rate == pytest.approx(13 / 24)
    assert stats.mean_acceptance_length == 2.625
    assert stats.acceptance_by_depth == [0.75, 0.5, 0.375]
    assert stats.conditional_acceptance_by_depth == pytest.approx([0.75, 4 / 6, 0.75])


def test_no_rounds_have_no_rate() -> None:
    stats = AcceptanceStats()
    assert stats.acceptance_rate is None
    assert stats.mean_acceptance_length is None
    stats.count(2, 0)
    assert (stats.acceptance_rate, stats.mean_acceptance_length) == (0.0, 1.0)
    assert stats.conditional_acceptance_by_depth == [0.0, None]


def test_adding_is_counting_together() -> None:
    rounds = [(3, 2), (1, 1), (4, 0), (2, 2)]
    together, parts = AcceptanceStats(), [AcceptanceStats(), AcceptanceStats()]
    for i, (num_drafted, num_accepted) in enumerate(rounds):
        together.count(num_drafted, num_accepted)
        parts[i % 2].count(num_drafted, num_accepted)
    total = AcceptanceStats()
    for part in parts:
        total.add(part)
    assert total == together


# K and the number of heads


def model_whose_second_module_is_wrong() -> MTPModel:
    trunk = script_trunk(ALPHABET)
    heads = scripted_heads(trunk, "perfect", **MODES["distinct"])  # type: ignore[arg-type]
    wrong = scripted_heads(trunk, "wrong")
    with torch.no_grad():
        heads.module_at(2).eh_proj.weight.copy_(wrong.module_at(1).eh_proj.weight)
    return MTPModel(trunk, heads)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_head_i_drafts_depth_i(depth: int) -> None:
    [done] = Engine(model_whose_second_module_is_wrong()).generate([">"], depth=depth)
    assert accepted_per_round(done) == [1] * 13
    assert done.text == ALPHABET[1:27]
    assert done.stats.conditional_acceptance_by_depth == [1.0, 0.0, None][:depth]


@pytest.mark.parametrize("depth", [4, 5, 8])
def test_more_depth_than_modules_is_refused(depth: int) -> None:
    engine = Engine(model_whose_second_module_is_wrong())
    with pytest.raises(UsageError, match=rf"depth {depth} is more than the 3 trained modules.*from 0 to 3"):
        engine.generate([">"], depth=depth)


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 8])
def test_an_unrolled_module_goes_deeper_than_it_was_trained(depth: int) -> None:
    trunk = script_trunk(ALPHABET)
    model = MTPModel(trunk, scripted_heads(trunk, "perfect", num_depths=1))
    [done] = Engine(model).generate([">"], SamplingParams(max_tokens=26), depth=depth)
    assert done.text == ALPHABET[1:27]
    assert done.stats.acceptance_rate == 1.0
    assert done.num_rounds == 1 + -(-25 // (depth + 1))


@pytest.mark.parametrize("depth", [-1, True, 1.0, "2", None])
def test_a_depth_is_a_number(depth: object) -> None:
    with pytest.raises(UsageError, match="not allowed; give an integer of at least 0"):
        Engine(MTPModel(script_trunk(ALPHABET))).generate([">"], depth=depth)  # type: ignore[arg-type]


def test_without_heads_only_depth_0() -> None:
    engine = Engine(MTPModel(script_trunk(ALPHABET)))
    [done] = engine.generate([">"])
    assert (done.text, done.stats.num_draft_tokens) == (ALPHABET[1:27], 0)
    with pytest.raises(UsageError, match="depth 2 asked for, but script has no heads"):
        engine.generate([">"], depth=2)


def test_depth_0_runs_no_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switched off is off."""
    trunk = script_trunk(ALPHABET)
    heads = scripted_heads(trunk, "perfect")
    monkeypatch.setattr(heads, "step", None)
    [done] = Engine(MTPModel(trunk, heads)).generate([">"], depth=0)
    assert done.text == ALPHABET[1:27]
    assert done.stats == AcceptanceStats()


def test_conditional_acceptance_counts_only_rounds_that_drafted_that_deep() -> None:
    stats = AcceptanceStats()
    for _ in range(5):
        stats.count(1, 1)
    for accepted in (2, 2, 1, 1, 1, 0, 0, 0, 0, 0):
        stats.count(2, accepted)
    assert stats.conditional_acceptance_by_depth == [10 / 15, 2 / 5]
    assert stats.acceptance_by_depth == [10 / 15, 2 / 10]
    summed = AcceptanceStats()
    summed.add(stats)
    assert summed == stats
