"""ParallelDrafter: chains and trees drafted by heads that read no tokens (parallel, Medusa)."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import torch

from foretell.decoding.blocks import FULL, BlockPool
from foretell.decoding.cache import KVCache
from foretell.decoding.drafter import NO_CACHE, PIECE
from foretell.decoding.grow import Branches, grow_all
from foretell.decoding.memory import heads_num_bytes
from foretell.decoding.passes import PassInput, PassRow
from foretell.decoding.sequence import Sequence
from foretell.decoding.shape import Shape
from foretell.decoding.state_queue import StateQueue
from foretell.models.decoder import States
from foretell.models.heads import Heads
from foretell.types import Draft


@dataclass
class _Known:
    """States that wait for the deepest module, and how many entries each module has."""

    lengths: list[int]
    queue: StateQueue | None = field(default=None)


class ParallelDrafter:
    """Every depth reads the trunk's states of committed tokens and guesses from the newest one.

    Depth k keeps entry i of its own cache for token i. No entry is ever provisional, so nothing is rewound. A depth
    reads when it is asked for a draft; states wait in the row's queue until its deepest module has read them. Modules
    without attention need the newest state alone: only that one is kept, and they have no cache. A depth guesses the
    same after every branch, so that a tree is a product of the depths' candidates (Medusa, arXiv 2401.10774).
    """

    def __init__(self, heads: Heads, pools: dict[str, BlockPool], window: int) -> None:
        self.heads = heads
        self.window = min(window, heads.config.max_positions or window)
        whole = dict.fromkeys([FULL, *heads.layer_kinds], pools[FULL])  # see Sequence.whole_tables
        self.caches = [KVCache(heads.layer_kinds, whole, heads.layer_window) for _ in range(heads.config.num_modules)]
        self._rows: dict[Sequence, _Known] = {}

    def admit(self, row: Sequence) -> None:
        """A new row."""
        self._rows[row] = _Known([row.num_cached] * len(self.caches))

    def forget(self, row: Sequence) -> None:
        """The row has ended, or must start anew."""
        self._rows.pop(row, None)

    def observe(self, row: Sequence, index: int, states: States) -> None:
        """The trunk's states of newly committed tokens; the first one belongs to token ``index`` of the row."""
        if not row.depth or index >= self.window:  # past their window the heads draft no more
            return
        known, trunk_states_ND = self._rows[row], self.heads.trunk_side(states)
        if not self.heads.attends:
            known.queue = StateQueue(index + len(trunk_states_ND) - 1, trunk_states_ND[-1:].clone())
        elif known.queue is None:
            known.queue = StateQueue(index, trunk_states_ND)
        else:
            known.queue.extend(index, trunk_states_ND)

    def depth_for(self, row: Sequence) -> int:
        """The modules there are; none past the window."""
        return len(self.caches) if len(row) <= self.window + 1 else 0

    def num_final(self, row: Sequence) -> int:
        """Entries that every module has read."""
        return min(self._rows[row].lengths) if self.heads.attends else NO_CACHE

    def draft(self, rows: list[Sequence], shapes: list[Shape]) -> list[Draft]:
        """One tree a row."""
        growers = [Branches(row, shape) for row, shape in zip(rows, shapes, strict=True)]
        self.extend(growers)
        return [grower.finish() for grower in growers]

    def extend(self, growers: Items[Branches]) -> None:
        """Grow drafts to their depth."""
        for depth in range(1, max((g.shape.depth - g.lead for g in growers), default=0) + 1):
            active = [g for g in growers if g.shape.depth - g.lead >= depth and g.frontier]
            logits_BV = self._read(depth, [grower.row for grower in active])
            sizes = torch.tensor([len(grower.frontier) for grower in active], device=logits_BV.device)
            self._choose(logits_BV.repeat_interleave(sizes, 0) if sizes.max() > 1 else logits_BV, active)
        for row in [grower.row for grower in growers]:
            known = self._rows[row]
            if self.heads.attends and known.queue is not None:
                deepest = row.depth if isinstance(row.depth, int) else None
                known.queue.drop_before(min(known.lengths[:deepest]))

    def _read(self, depth: int, rows: list[Sequence]) -> torch.Tensor:
        """Logits (B, V) of ``depth`` at every row's newest state, once its module has read all states up to there."""
        heads, cache = self.heads, self.caches[depth - 1]
        reads, states = [], []
        for row in rows:
            known = self._rows[row]
            assert known.queue is not None
            start = max(known.queue.start, known.lengths[depth - 1] if heads.attends else 0)
            while len(known.queue.since(start)) > PIECE:  # a long prompt
                read = PassRow.stretch(row.whole_tables(cache.kinds), start, PIECE)
                self._pass(depth, [read], [known.queue.since(start)[:PIECE]])
                start += PIECE
            states.append(known.queue.since(start))
            reads.append(PassRow.stretch(row.whole_tables(cache.kinds), start, len(states[-1])))
            known.lengths[depth - 1] = start + len(states[-1])
        pass_input, output = self._pass(depth, reads, states)
        newest = pass_input.pick(output.post_BTD, [(b, count - 1) for b, count in enumerate(pass_input.counts)])
        return heads.project(newest, depth)

    def _pass(self, depth: int, reads: list[PassRow], states: list[torch.Tensor]) -> tuple[PassInput, States]:
        cache = self.caches[depth - 1]
        pass_input = PassInput.build(cache, reads, self.heads.device)
        where = pass_input.positions_BT, pass_input.masks, cache
        return pass_input, self.heads.step(depth, pass_input.states(states), None, *where)

    def _choose(self, logits_FV: torch.Tensor, growers: list[Branches]) -> None:
        grow_all(growers, logits_FV, self.heads)

    @property
    def num_bytes(self) -> int:
        """Memory of the heads' weights, and of their keys and values."""
        return heads_num_bytes(self.heads) + sum(cache.num_bytes for cache in self.caches)
