"""NodeStates: which rows run together, which nodes at once, and which states are kept."""

from __future__ import annotations

import pytest
import torch

from foretell.decoding.recurrent_nodes import LONG, NodeStates


def running_sum(x_BN: torch.Tensor, before: torch.Tensor | None) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The plainest recurrent rule: the state is the sum so far, and so is the output."""
    start = torch.zeros(x_BN.shape[0]) if before is None else before
    sums = start.unsqueeze(1) + x_BN.cumsum(1)
    return sums, list(sums.unbind(1))


@pytest.mark.parametrize("with_state", [False, True])
def test_rows_of_every_kind_in_one_pass(with_state: bool) -> None:
    """A short chain, a single token, a long prompt, and a long prompt with drafts behind it; padding is poison."""
    counts, certain = [4, 1, LONG + 1, LONG + 4], [2, 1, LONG + 1, LONG + 1]
    x = torch.full((4, LONG + 4), float("nan"))
    for b, count in enumerate(counts):
        x[b, :count] = torch.arange(1.0, count + 1) * (b + 1)
    before = torch.tensor([100.0, 200.0, 300.0, 400.0]) if with_state else None
    at_once: list[tuple[int, int]] = []

    def many(x_BN: torch.Tensor, before: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        at_once.append((x_BN.shape[0], x_BN.shape[1]))
        output, states = running_sum(x_BN, before)
        return output, states[-1]

    states = NodeStates(counts, certain, before)
    output = states.run((x,), running_sum, many)
    assert at_once == [(2, LONG + 1)]
    for b, count in enumerate(counts):
        expected = x[b, :count].cumsum(0) + (0 if before is None else before[b])
        assert output[b, :count].tolist() == expected.tolist()
        assert list(states.after[b]) == list(range(certain[b], count + 1))
        assert [state.item() for state in states.after[b].values()] == expected[certain[b] - 1 :].tolist()
