"""The rule of arXiv 2401.10774, section 2.3.1, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from foretell.decoding.typical import verify_typical
from foretell.types import Draft, Verdict

LAST = (0.0, 0.0, 0.0, 1.0)  # after the path token 3 follows for certain


def rows(*values: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(values)


def verdict(draft: Draft, probs_NV: torch.Tensor, epsilon: float = 0.09) -> Verdict:
    return verify_typical(draft, probs_NV, epsilon, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("probs", "epsilon"),
    [((0.1, 0.9, 0.0, 0.0), 0.09), ((0.25, 0.25, 0.25, 0.25), 0.09), ((0.25, 0.25, 0.25, 0.25), 0.5)],
)
def test_the_threshold(probs: tuple[float, ...], epsilon: float) -> None:
    entropy = -sum(p * math.log(p) for p in probs if p)
    threshold = min(epsilon, math.sqrt(epsilon) * math.exp(-entropy))
    for token in range(4):
        found = verdict(Draft.chain([token]), rows(probs, LAST), epsilon)
        assert (found.num_accepted == 1) == (probs[token] > threshold)
        if found.num_accepted:
            assert found == Verdict([0], 3, True)


def test_what_is_unlikely_in_a_sharp_law_is_likely_in_a_flat_one() -> None:
    sharp, flat = (0.05, 0.95) + (0.0,) * 14, (0.05,) + (0.95 / 15,) * 15
    end = (0.0,) * 15 + (1.0,)
    assert verdict(Draft.chain([0]), rows(sharp, end)).num_accepted == 0
    assert verdict(Draft.chain([0]), rows(flat, end)) == Verdict([0], 15, True)


def test_a_chain_ends_at_the_first_unlikely_token_whatever_follows() -> None:
    one, two = (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0)
    assert verdict(Draft.chain([1, 1, 3]), rows(one, two, LAST, LAST)) == Verdict([0], 2, False)
    assert verdict(Draft.chain([]), rows(one)) == Verdict([], 1, True)


def test_a_tree_gives_its_longest_path_then_the_likeliest() -> None:
    likely = (0.5, 0.3, 0.2, 0.0)
    draft = Draft()
    a, b = draft.add(0, -1), draft.add(1, -1)
    draft.add(3, a)  # never
    assert verdict(draft, rows(likely, LAST[::-1], LAST, LAST)) == Verdict([a], 0, False)
    c = draft.add(2, b)
    assert verdict(draft, rows(likely, LAST[::-1], likely, LAST, LAST)) == Verdict([b, c], 3, True)


def test_the_next_token_is_drawn_from_the_trunk() -> None:
    probs = rows((0.001, 0.6, 0.399, 0.0), LAST)
    generator = torch.Generator().manual_seed(0)
    tokens = [verify_typical(Draft.chain([0]), probs, 0.5, generator).next_token for _ in range(2000)]
    assert tokens.count(1) / 2000 == pytest.approx(0.6, abs=0.04) and 3 not in tokens
