"""RecurrentStates: what recurrent layers remember of every row, with an exact rewind to any accepted prefix."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import torch

from foretell.decoding.recurrent_layers import wrap_layer
from foretell.decoding.recurrent_nodes import NO_LIMIT, NodeStates
from foretell.decoding.recurrent_rules import wrap_rules
from foretell.errors import UnsupportedModel
from foretell.models.recurrent_support import recurrent_family

StateKey = tuple[str, int, int]
"""Convolution or rule, layer index, index of the state within its layer."""


class RecurrentStates:
    """The recurrent part of a decode cache, for the model's layers and for the step.

    A pass has hidden states (B, N, D). A row brings a chain: nodes that will be committed in any case, then drafts; a
    row of fewer than N nodes is padded at the end, and its padding reaches no state. States are never changed in place:
    a pass offers the state after every node that may be the last accepted one, and ``commit`` takes one. So a pass that
    is given up needs no clean-up, and between passes every row stands where it was committed.

    Kind "per-node": a layer runs all N nodes at once, and its rule alone goes node by node. Kind "per-token": the
    whole layer does.
    """

    def __init__(self, model: Any) -> None:
        """Prepare the code of ``model``'s layers, once a process.

        Raises UnsupportedModel where the model has no recurrent layer, or one whose state cannot be rewound.
        """
        family = recurrent_family(model)
        if family is None:
            raise UnsupportedModel(f"{type(model).__name__} has no recurrent layer; it needs no RecurrentStates")
        self.kind = family.kind
        layers = [module for module in model.modules() if type(module).__name__ == family.layer]
        self._step_limits = {layer.layer_idx: getattr(layer, "time_step_limit", NO_LIMIT) for layer in layers}
        if self.kind == "per-token":
            wrap_layer(type(layers[0]))
        wrap_rules(type(layers[0]), family.rules)
        self._committed: dict[Hashable, dict[StateKey, torch.Tensor]] = {}
        self._rows: list[Hashable] = []
        self._counts: list[int] = []
        self._certain: list[int] = []
        self._after: list[dict[StateKey, dict[int, torch.Tensor]]] = []  # by row and state: number of nodes -> state
        self._now: tuple[list[int], int, int] = ([], 0, 0)  # rows, first and last node that a layer runs now

    # For the step

    def begin(self, rows: Sequence[Hashable], counts: Sequence[int], certain: Sequence[int]) -> None:
        """Announce a pass: row b brings ``counts[b]`` nodes, the first ``certain[b]`` of which will be committed.

        ``certain`` is 1 to ``counts[b]``: all but the drafts. A row that has no state yet starts from nothing.
        """
        self._rows, self._counts, self._certain = list(rows), list(counts), list(certain)
        for row, count, sure in zip(self._rows, self._counts, self._certain, strict=True):
            if not 1 <= sure <= count:
                raise ValueError(f"row {row!r}: {sure} certain nodes of {count}; at least the root, at most all")
        self._after = [{} for _ in self._rows]
        self._now = (list(range(len(self._rows))), 0, max(self._counts))

    def commit(self, row: Hashable, num_nodes: int) -> None:
        """The first ``num_nodes`` nodes that ``row`` brought in the last pass are final; the rest never was."""
        b = self._rows.index(row)
        if not self._certain[b] <= num_nodes <= self._counts[b]:
            least, most = self._certain[b], self._counts[b]
            raise ValueError(f"row {row!r}: commit of {num_nodes} nodes; {least} to {most} are possible")
        self._committed[row] = {key: _own(states[num_nodes]) for key, states in self._after[b].items()}

    def forget(self, row: Hashable) -> None:
        """The row has no state any more: it finished, or starts again from its first token."""
        self._committed.pop(row, None)

    def states_of(self, row: Hashable) -> dict[StateKey, torch.Tensor]:
        """The row's committed states, without a batch dimension."""
        return dict(self._committed.get(row, {}))

    @property
    def num_bytes(self) -> int:
        """Memory held by committed states; a pass holds as much again for every draft it brings."""
        states = [state for own in self._committed.values() for state in own.values()]
        return sum(state.numel() * state.element_size() for state in states)

    # For the layers

    @property
    def recurrent(self) -> RecurrentStates:
        """Itself: layers that run token by token look for this attribute in the cache they are given."""
        return self

    def stretches(self) -> Iterator[tuple[list[int], int, int]]:
        """Rows and nodes that a layer runs token by token: of a new row its certain nodes first, then one by one.

        Until the next item is taken, the layer reads and writes the states of those rows alone.
        """
        done = [0] * len(self._rows)
        new = [b for b, row in enumerate(self._rows) if row not in self._committed]
        for certain in sorted({self._certain[b] for b in new}):
            rows = [b for b in new if self._certain[b] == certain]
            done = [certain if b in rows else own for b, own in enumerate(done)]
            self._now = (rows, 0, certain)
            yield self._now
        for node in range(max(self._counts)):
            rows = [b for b, own in enumerate(done) if own <= node < self._counts[b]]
            if rows:
                self._now = (rows, node, node + 1)
                yield self._now

    def is_recording_past(self, layer_idx: int) -> bool:
        """Always: so that layers hand every convolution input over instead of writing into the state."""
        return True

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> None:
        """Nothing: layers then ask ``update_conv_state`` for the inputs before theirs, in passes of one token too."""

    def update_conv_state(
        self, inputs: torch.Tensor, layer_idx: int, state_idx: int = 0, *, conv_kernel_size: int
    ) -> torch.Tensor:
        """Inputs (B, C, N) of a convolution -> (B, C, kernel + N), those before them in front (zeros at the start)."""
        key = ("conv", layer_idx, state_idx)
        before = self._before(key)
        if before is None:
            before = inputs.new_zeros(*inputs.shape[:2], conv_kernel_size)
        context = torch.cat([before, inputs], dim=-1)
        rows, start, stop = self._now
        for i, b in enumerate(rows):
            for n in range(max(start + 1, min(self._certain[b], stop)), min(stop, self._counts[b]) + 1):
                self._keep(b, key, n, context[i, :, n - start : n - start + conv_kernel_size])
        return context

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> torch.Tensor | NodeStates | None:
        """The rows' states as the layer's rule takes them."""
        key = ("rule", layer_idx, state_idx)
        before = self._before(key)
        if self.kind == "per-node":
            node_states = NodeStates(self._counts, self._certain, before, self._step_limits[layer_idx])
            for b, after in enumerate(node_states.after):
                self._after[b][key] = after
            return node_states
        if before is not None:
            # Rules for one token write into what they are given, and report nothing.
            self.update_recurrent_state(before, layer_idx, state_idx)
        return before

    def update_recurrent_state(self, states: torch.Tensor, layer_idx: int, state_idx: int = 0) -> torch.Tensor:
        """The layer reports the rows' states after its nodes; a rule that goes node by node has kept them already."""
        if self.kind == "per-token":
            rows, _, stop = self._now
            for i, b in enumerate(rows):
                self._keep(b, ("rule", layer_idx, state_idx), stop, states[i])
        return states

    def _before(self, key: StateKey) -> torch.Tensor | None:
        """The states that the rows start from, stacked; zeros for a new row, None where all are new."""
        rows, start, _ = self._now
        committed = [self._committed.get(self._rows[b], {}).get(key) for b in rows]
        found = [self._after[b][key][start] for b in rows] if start else committed
        known = next((state for state in found if state is not None), None)
        if known is None:
            return None
        if len(found) == 1 and self.kind == "per-node":
            return known.unsqueeze(0)  # rules that go node by node write into no state
        return torch.stack([torch.zeros_like(known) if state is None else state for state in found])

    def _keep(self, b: int, key: StateKey, num_nodes: int, state: torch.Tensor) -> None:
        """``state`` is row b's after ``num_nodes``; what it was before is kept if it may be the last accepted one."""
        after = self._after[b].setdefault(key, {})
        if num_nodes - 1 < self._certain[b]:
            after.pop(num_nodes - 1, None)
        after[num_nodes] = state


def _own(state: torch.Tensor) -> torch.Tensor:
    """The state in memory of its own, so that it does not keep a whole pass alive."""
    return state if state.untyped_storage().nbytes() == state.numel() * state.element_size() else state.clone()
