"""NodeStates: a layer's recurrent states in one pass, one after every node that may be the last accepted one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

LONG = 16
"""Rows whose certain nodes are more than this run them by the family's own rule for many tokens."""

NO_LIMIT = (0.0, float("inf"))

ByNode = Callable[..., tuple[torch.Tensor, list[torch.Tensor]]]
"""Inputs (B, n, ...) and the states before them -> output (B, n, ...) and the states after each node."""

AtOnce = Callable[..., tuple[torch.Tensor, torch.Tensor]]
"""The same with the states after the last node alone."""


@dataclass
class NodeStates:
    """What a layer gets as its recurrent state.

    ``counts``: nodes of every row. ``certain``: how many of them will be committed in any case; fewer never will be.
    ``before``: states before the pass (B, ...), or None where no row has one. ``after[b][n]``: row b's state after n
    nodes, for n from ``certain[b]`` to ``counts[b]``. ``step_limit``: least and greatest time step of a Mamba layer.
    """

    counts: list[int]
    certain: list[int]
    before: torch.Tensor | None
    step_limit: tuple[float, float] = NO_LIMIT
    after: list[dict[int, torch.Tensor]] = field(init=False)

    def __post_init__(self) -> None:
        self.after = [{} for _ in self.counts]

    def run(self, inputs_BN: tuple[torch.Tensor, ...], by_node: ByNode, at_once: AtOnce) -> torch.Tensor:
        """The layer's output, of the shape of the first input; fills ``after``.

        Every row runs as its own numbers ask for, so that what it gives does not depend on the rows beside it.
        """
        output = torch.zeros_like(inputs_BN[0])
        for rows, head in self._groups():
            which = rows if len(rows) < len(self.counts) else slice(None)  # a slice copies nothing
            states = None if self.before is None else self.before[which]
            if head:
                output[which, :head], states = at_once(*(x[which, :head] for x in inputs_BN), states)
                self._keep(rows, head, states)
            stop = max(self.counts[b] for b in rows)
            if stop > head:
                output[which, head:stop], after = by_node(*(x[which, head:stop] for x in inputs_BN), states)
                for n, states in enumerate(after, start=head + 1):
                    self._keep(rows, n, states)
        return output

    def _groups(self) -> Iterator[tuple[list[int], int]]:
        """Rows that run together, and how many of their first nodes run at once."""
        heads = [certain if certain > LONG else 0 for certain in self.certain]
        for head in sorted(set(heads)):
            yield [b for b, own in enumerate(heads) if own == head], head

    def _keep(self, rows: list[int], num_nodes: int, states: torch.Tensor) -> None:
        for i, b in enumerate(rows):
            if self.certain[b] <= num_nodes <= self.counts[b]:
                self.after[b][num_nodes] = states[i]
