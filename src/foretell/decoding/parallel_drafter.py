"""ParallelDrafter: chains drafted by heads that read no tokens (parallel, Medusa), for rows of different length."""

from __future__ import annotations

import torch

from foretell.decoding.cache import KVCache
from foretell.decoding.choose import choose_tokens
from foretell.decoding.memory import heads_num_bytes
from foretell.decoding.passes import PassInput
from foretell.decoding.sequence import Sequence
from foretell.decoding.state_queue import StateQueue
from foretell.models.decoder import States
from foretell.models.heads import Heads
from foretell.types import Draft


class ParallelDrafter:
    """Every depth reads the trunk's states of committed tokens and guesses from the newest one.

    Depth k keeps entry i of its own cache for token i. No entry is ever provisional, so nothing is rewound. A depth
    reads when it is asked for a draft; states wait in the row's queue until its deepest module has read them. Modules
    without attention need the newest state alone: only that one is kept, and nothing is written to their caches.
    """

    def __init__(self, heads: Heads, num_slots: int, window: int) -> None:
        self.heads = heads
        self.window = min(window, heads.config.max_positions or window)
        self.caches = [KVCache(num_slots, self.window) for _ in range(heads.config.num_modules)]
        self._queues: list[StateQueue | None] = [None] * num_slots

    def admit(self, slot: int) -> None:
        """A new row takes ``slot``."""
        self._queues[slot] = None
        for cache in self.caches:
            cache.commit(slot, 0)

    def move(self, source: int, target: int) -> None:
        """A row changes slots."""
        self._queues[target] = self._queues[source]
        for cache in self.caches:
            cache.move(source, target)

    def observe(self, row: Sequence, index: int, states: States) -> None:
        """The trunk's states of newly committed tokens; the first one belongs to token ``index`` of the row."""
        if not row.depth or index >= self.window:  # past their window the heads draft no more
            return
        trunk_states_ND = self.heads.trunk_side(states)
        if not self.heads.attends:
            self._queues[row.slot] = StateQueue(index + len(trunk_states_ND) - 1, trunk_states_ND[-1:].clone())
        elif (queue := self._queues[row.slot]) is None:
            self._queues[row.slot] = StateQueue(index, trunk_states_ND)
        else:
            queue.extend(index, trunk_states_ND)

    def depth_for(self, row: Sequence) -> int:
        """How deep this row can be drafted now: its own limit and the modules there are; none past the window."""
        return min(row.depth_limit, len(self.caches)) if len(row) <= self.window + 1 else 0

    def draft(self, rows: list[Sequence], depths: list[int]) -> list[Draft]:
        """One chain a row, ``depths[b]`` tokens long."""
        drafts = [Draft() for _ in rows]
        for depth in range(1, max(depths, default=0) + 1):
            active = [b for b, limit in enumerate(depths) if limit >= depth]
            logits_BV = self._read(depth, [rows[b] for b in active])
            self._choose(logits_BV, [rows[b] for b in active], [drafts[b] for b in active])
        if self.heads.attends:
            for row in rows:
                if (queue := self._queues[row.slot]) is not None:
                    queue.drop_before(min(cache.lengths[row.slot] for cache in self.caches[: row.depth]))
        return drafts

    def _read(self, depth: int, rows: list[Sequence]) -> torch.Tensor:
        """Logits (B, V) of ``depth`` at every row's newest state, once its module has read all states up to there."""
        heads, cache = self.heads, self.caches[depth - 1]
        starts, states = [], []
        for row in rows:
            queue = self._queues[row.slot]
            assert queue is not None
            starts.append(max(queue.start, cache.lengths[row.slot]))
            states.append(queue.since(starts[-1]))
        counts = [len(row_states) for row_states in states]
        pass_input = PassInput.build(cache, [row.slot for row in rows], starts, counts, heads.trunk.device)
        output = heads.step(
            depth,
            pass_input.pad(states),
            None,
            pass_input.positions_BN,
            pass_input.allowed_BNS,
            pass_input.key_positions_BS,
            cache,
        )
        for row, start, count in zip(rows, starts, counts, strict=True):
            cache.commit(row.slot, start + count)
        newest = torch.tensor(counts, device=output.post_BTD.device) - 1
        row_index = torch.arange(len(rows), device=output.post_BTD.device)
        return heads.project(output.post_BTD[row_index, newest], depth)

    def _choose(self, logits_BV: torch.Tensor, rows: list[Sequence], drafts: list[Draft]) -> None:
        choose_tokens(logits_BV, rows, drafts, self.heads)

    @property
    def num_bytes(self) -> int:
        """Memory of the heads' weights, and of their keys and values."""
        return heads_num_bytes(self.heads) + sum(cache.num_bytes for cache in self.caches)
