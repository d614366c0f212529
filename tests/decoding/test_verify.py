"""Units; the law that they add up to is in tests/lossless."""

from __future__ import annotations

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.sampling import filtered_probs
from foretell.decoding.verify import verify_greedy, verify_sampled
from foretell.types import Draft, Verdict

HOT = SamplingParams(temperature=1.0)


@pytest.mark.parametrize(
    ("drafted", "argmax_ids", "verdict"),
    [
        ([], [7], Verdict(0, 7, True)),
        ([5], [5, 6], Verdict(1, 6, True)),
        ([5], [4, 6], Verdict(0, 4, False)),
        ([5, 6, 7], [5, 6, 7, 8], Verdict(3, 8, True)),
        ([5, 6, 7], [5, 6, 9, 8], Verdict(2, 9, False)),
        ([5, 6, 7], [9, 6, 7, 8], Verdict(0, 9, False)),  # what follows a wrong token does not count
        ([5, 6, 7], [5, 9, 7, 8], Verdict(1, 9, False)),
    ],
)
def test_greedy(drafted: list[int], argmax_ids: list[int], verdict: Verdict) -> None:
    assert verify_greedy(Draft(drafted), argmax_ids) == verdict


def point(*tokens: int) -> torch.Tensor:
    """Logits that leave one token a row."""
    logits = torch.full((len(tokens), 5), float("-inf"))
    return logits.scatter_(1, torch.tensor(tokens).unsqueeze(1), 0.0)


def uniform(num_rows: int) -> torch.Tensor:
    return torch.full((num_rows, 5), 0.2)


@pytest.mark.parametrize(
    ("drafted", "trunk_says", "verdict"),
    [
        ([], [3], Verdict(0, 3, True)),
        ([1, 2], [1, 2, 3], Verdict(2, 3, True)),
        ([1, 2], [1, 4, 3], Verdict(1, 4, False)),
        ([1, 2], [0, 2, 3], Verdict(0, 0, False)),
    ],
)
def test_a_trunk_without_doubt(drafted: list[int], trunk_says: list[int], verdict: Verdict) -> None:
    """A token with p = 0 is never accepted, whatever is drawn; one with p = 1 always."""
    for seed in range(200):
        draft = Draft(drafted, uniform(len(drafted)) if drafted else None)
        assert (
            verify_sampled(draft, filtered_probs(point(*trunk_says), HOT), torch.Generator().manual_seed(seed))
            == verdict
        )


def test_the_smallest_random_number_accepts_nothing_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda *_, **__: torch.tensor(0.0, dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    assert verify_sampled(Draft([1], uniform(1)), filtered_probs(point(3, 0), HOT), generator) == Verdict(0, 3, False)


def test_equal_laws_accept_everything() -> None:
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    for seed in range(200):
        draft = Draft([1, 4, 0], filtered_probs(logits[:3], HOT))
        verdict = verify_sampled(draft, filtered_probs(logits, HOT), torch.Generator().manual_seed(seed))
        assert (verdict.num_accepted, verdict.all_accepted) == (3, True)


def test_a_rejected_token_is_not_drawn_again() -> None:
    """The replacement comes from where p exceeds q."""
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.0], [0.2] * 5]).log()
    q = torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0]])
    verdicts = [
        verify_sampled(Draft([3], q), filtered_probs(logits, HOT), torch.Generator().manual_seed(s)) for s in range(400)
    ]
    rejected = [v.next_token for v in verdicts if not v.all_accepted]
    assert set(rejected) == {0, 1, 2}
    assert 0.5 < len(rejected) / 400 < 0.7  # accepted with 0.4


def test_filters_hold_for_the_draft_too() -> None:
    """A drafted token outside the trunk's top-k is rejected, inside it judged by the re-normalised law."""
    params = SamplingParams(temperature=1.0, top_k=1)
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.0], [0.9, 0.1, 0.0, 0.0, 0.0]]).log()
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        assert verify_sampled(Draft([2], uniform(1)), filtered_probs(logits, params), generator) == Verdict(0, 3, False)
        assert verify_sampled(Draft([3], uniform(1)), filtered_probs(logits, params), generator) == Verdict(1, 0, True)
