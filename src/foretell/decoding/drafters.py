"""HeadsDrafter: chains drafted by sequential heads, for rows of different length."""

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
from foretell.models.sequential import SequentialHeads
from foretell.types import Draft


class HeadsDrafter:
    """Module of depth k reads pairs (state k-1 at index i, token i+k) into entry i of its own cache.

    A pair whose token is drafted makes a provisional entry; the next call overwrites it with the true one. For distinct
    modules these are the last k-1 indices of module k, so their input states wait in a queue. An unrolled module has
    one cache: true entries come from depth 1, and deeper steps write behind them.
    """

    def __init__(self, heads: Heads, num_slots: int, window: int) -> None:
        assert isinstance(heads, SequentialHeads)
        self.heads = heads
        self.window = min(window, heads.config.max_positions or window)
        num_modules = heads.config.num_modules
        self.caches = [KVCache(num_slots, self.window) for _ in range(num_modules)]
        self._queues: list[list[StateQueue | None]] = [[None] * num_modules for _ in range(num_slots)]

    def admit(self, slot: int) -> None:
        """A new row takes ``slot``."""
        self._queues[slot] = [None] * len(self.caches)
        for cache in self.caches:
            cache.commit(slot, 0)

    def move(self, source: int, target: int) -> None:
        """A row changes slots."""
        self._queues[target] = self._queues[source]
        for cache in self.caches:
            cache.move(source, target)

    def observe(self, row: Sequence, index: int, states: States) -> None:
        """The trunk's states of newly committed tokens; the first one belongs to token ``index`` of the row."""
        if row.depth and index < self.window:  # past their window the heads draft no more
            self._push(row.slot, 0, index, self.heads.trunk_side(states))

    def depth_for(self, row: Sequence) -> int:
        """How deep this row can be drafted now: its own limit, the heads' window, and the modules there are."""
        limit = min(row.depth_limit, self.heads.config.max_depth or row.depth)
        return max(0, min(limit, self.window - len(row) + 1))

    def draft(self, rows: list[Sequence], depths: list[int]) -> list[Draft]:
        """One chain a row, ``depths[b]`` tokens long."""
        drafts = [Draft() for _ in rows]
        carried: dict[int, torch.Tensor] = {}
        for depth in range(1, max(depths, default=0) + 1):
            active = [b for b, limit in enumerate(depths) if limit >= depth]
            self._draft_depth(depth, [rows[b] for b in active], [drafts[b] for b in active], active, carried)
        return drafts

    def _draft_depth(
        self, depth: int, rows: list[Sequence], drafts: list[Draft], keys: list[int], carried: dict[int, torch.Tensor]
    ) -> None:
        heads, unrolled = self.heads, self.heads.config.unrolled
        cache = self.caches[0 if unrolled else depth - 1]
        starts, states, tokens = [], [], []
        for row, draft, key in zip(rows, drafts, keys, strict=True):
            last = len(row) - 2  # index of the newest trunk state
            if unrolled and depth > 1:
                start, row_states = last + depth - 1, carried[key]
                row_tokens = [draft.token_ids[-1]]
            else:
                queue = self._queues[row.slot][depth - 1]
                assert queue is not None
                start = queue.start
                row_states = queue.states_ND
                if (num_provisional := last + 1 - start - len(row_states)) > 0:
                    row_states = torch.cat([row_states, carried[key][-num_provisional:]])
                row_tokens = [*row.tokens_from(start + depth), *draft.token_ids[max(0, start + depth - len(row)) :]]
            starts.append(start)
            states.append(row_states)
            tokens.append(row_tokens)
        pass_input = PassInput.build(
            cache, [row.slot for row in rows], starts, [len(t) for t in tokens], heads.trunk.device
        )
        output = heads.step(
            depth,
            pass_input.pad(states),
            heads.trunk.embed(pass_input.pad_ids(tokens)),
            pass_input.positions_BN,
            pass_input.allowed_BNS,
            pass_input.key_positions_BS,
            cache,
        )
        feedback_BND = heads.feedback(output)
        last_node = torch.tensor([len(t) - 1 for t in tokens], device=feedback_BND.device)
        row_index = torch.arange(len(rows), device=feedback_BND.device)
        logits_BV = heads.project(output.post_BTD[row_index, last_node], depth)
        self._choose(logits_BV, rows, drafts)
        for b, (row, key) in enumerate(zip(rows, keys, strict=True)):
            num_nodes, last = len(tokens[b]), len(row) - 2
            if unrolled:
                carried[key] = feedback_BND[b, num_nodes - 1 : num_nodes]
                if depth == 1:
                    self._confirm(row.slot, cache, 0, last + 1)
                continue
            self._confirm(row.slot, cache, depth - 1, last + 2 - depth)
            num_true = last + 2 - depth - starts[b]  # states whose token was true, so that they stay as they are
            if depth < len(self.caches) and num_true > 0:
                self._push(row.slot, depth, starts[b], feedback_BND[b, :num_true])
            elif depth < len(self.caches) and self._queues[row.slot][depth] is None:
                self._push(row.slot, depth, starts[b], feedback_BND[b, :0])
            carried[key] = feedback_BND[b, :num_nodes]  # indices starts[b] .. last

    def _confirm(self, slot: int, cache: KVCache, stream: int, length: int) -> None:
        """Entries below ``length`` were made from true tokens; their input states are no longer needed."""
        length = max(length, 0)
        cache.commit(slot, length)
        queue = self._queues[slot][stream]
        assert queue is not None
        queue.drop_before(length)

    def _push(self, slot: int, stream: int, index: int, states_ND: torch.Tensor) -> None:
        queue = self._queues[slot][stream]
        if queue is None:
            self._queues[slot][stream] = StateQueue(index, states_ND)
        else:
            queue.extend(index, states_ND)

    def _choose(self, logits_BV: torch.Tensor, rows: list[Sequence], drafts: list[Draft]) -> None:
        choose_tokens(logits_BV, rows, drafts, self.heads)

    @property
    def num_bytes(self) -> int:
        """Memory of the heads' weights, and of their keys and values."""
        return heads_num_bytes(self.heads) + sum(cache.num_bytes for cache in self.caches)
