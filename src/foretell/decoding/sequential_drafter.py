"""SequentialDrafter: chains and trees drafted by sequential heads, for rows of different length."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch

from foretell.decoding.blocks import FULL, BlockPool
from foretell.decoding.cache import KVCache
from foretell.decoding.drafter import PIECE
from foretell.decoding.grow import Branches, grow_all
from foretell.decoding.memory import heads_num_bytes
from foretell.decoding.passes import PassInput, PassRow
from foretell.decoding.sequence import Sequence
from foretell.decoding.shape import Shape
from foretell.decoding.state_queue import StateQueue
from foretell.models.decoder import States
from foretell.models.sequential import SequentialHeads
from foretell.types import Draft


@dataclass
class _Read:
    """What a module reads for one row: ``num_true`` nodes of true tokens from entry ``start`` on, then ``num_branch``
    nodes for each node of the frontier; ``ends``: the last one of each.
    """

    where: PassRow
    states_ND: torch.Tensor
    token_ids: list[int]
    ends: list[int]
    start: int
    num_true: int
    num_branch: int


class SequentialDrafter:
    """Module of depth k reads pairs (state k-1 at index i, token i+k) into entry i of its own cache.

    A pair whose token is drafted makes a provisional entry; the next call overwrites it with the true one. For distinct
    modules these are the last k-1 indices of module k, so their input states wait in a queue, and every branch of a
    tree writes its own. An unrolled module has one cache: true entries come from depth 1, and deeper steps write behind
    them, an entry a node.
    """

    def __init__(self, heads: SequentialHeads, pools: dict[str, BlockPool], window: int) -> None:
        self.heads = heads
        self.window = min(window, heads.config.max_positions or window)
        whole = dict.fromkeys([FULL, *heads.layer_kinds], pools[FULL])  # see Sequence.whole_tables
        self.caches = [KVCache(heads.layer_kinds, whole, heads.layer_window) for _ in range(heads.config.num_modules)]
        self._rows: dict[Sequence, list[StateQueue | None]] = {}

    def admit(self, row: Sequence) -> None:
        """A new row."""
        self._rows[row] = [None] * len(self.caches)

    def forget(self, row: Sequence) -> None:
        """The row has ended, or must start anew."""
        self._rows.pop(row, None)

    def observe(self, row: Sequence, index: int, states: States) -> None:
        """The trunk's states of newly committed tokens; the first one belongs to token ``index`` of the row."""
        if row.depth and index < self.window:  # past their window the heads draft no more
            self._push(row, 0, index, self.heads.trunk_side(states))

    def depth_for(self, row: Sequence) -> int:
        """As far as the heads' window and the modules there are go."""
        left = max(0, self.window - len(row) + 1)
        return left if self.heads.config.max_depth is None else min(left, self.heads.config.max_depth)

    def num_final(self, row: Sequence) -> int:
        """Entries that every module has read with true tokens."""
        queues = self._rows[row]
        return min(queue.start if queue else 0 for queue in queues)

    def draft(self, rows: list[Sequence], shapes: list[Shape]) -> list[Draft]:
        """One tree a row."""
        growers = [Branches(row, shape) for row, shape in zip(rows, shapes, strict=True)]
        self.extend(growers)
        return [grower.finish() for grower in growers]

    def extend(self, growers: Items[Branches]) -> None:
        """Grow drafts to their depth."""
        if self._extend_chains(growers):
            return
        for depth in range(1, max((g.shape.depth - g.lead for g in growers), default=0) + 1):
            self._draft_depth(depth, [g for g in growers if g.shape.depth - g.lead >= depth and g.frontier])

    def _extend_chains(self, growers: Items[Branches]) -> bool:
        """Greedy chains, all depths at once; False where that cannot be."""
        chain = self.heads.chain
        if chain is None or not growers or not all(g.is_plain and not g.lead and g.shape.depth for g in growers):
            return False
        for grower in growers:
            self._catch_up(grower, 1)
        queues = [self._queue(grower.row, 1) for grower in growers]
        ends = [len(grower.row) - 1 for grower in growers]  # from here on tokens are drafted
        counts = [end - queue.start for queue, end in zip(queues, ends, strict=True)]
        if min(counts) < 1 or not chain.fits(sum(counts)):
            return False
        kinds = self._cache(1).kinds
        rows = [
            PassRow.stretch(g.row.whole_tables(kinds), queue.start, n + g.shape.depth - 1)
            for g, queue, n in zip(growers, queues, counts, strict=True)
        ]
        pass_input = PassInput.build(self._cache(1), rows, self.heads.device)
        read = zip(growers, queues, ends, strict=True)
        drafted = chain.draft(
            [token_id for g, queue, end in read for token_id in g.row.tokens_from(queue.start + 1, end + 1)],
            torch.cat([queue.states_ND[:n] for queue, n in zip(queues, counts, strict=True)]),
            [grower.shape.depth for grower in growers],
            pass_input.positions_BT,
            pass_input.masks,
            self._cache(1),
        )
        for grower, queue, end, token_ids in zip(growers, queues, ends, drafted, strict=True):
            for token_id in token_ids:
                grower.grow_greedy_chain(token_id)
            queue.drop_before(end)
        return True

    def _draft_depth(self, depth: int, growers: list[Branches]) -> None:
        is_behind = self.heads.config.unrolled and depth > 1
        kinds = self._cache(depth).kinds
        reads = []
        for grower in growers:
            if is_behind:
                reads.append(_read_behind(grower, kinds))
            else:
                self._catch_up(grower, depth)
                reads.append(_read_queue(grower, self._queue(grower.row, depth), depth, kinds))
        pass_input, output = self._pass(depth, reads)
        feedback = pass_input.split(self.heads.feedback(output))
        picked = pass_input.pick(output.post_BTD, [(b, n) for b, read in enumerate(reads) for n in read.ends])
        for grower, read, states_ND in zip(growers, reads, feedback, strict=True):
            self._keep(grower, read, states_ND, depth)
        self._choose(self.heads.project(picked, depth), growers)

    def _catch_up(self, grower: Branches, depth: int) -> None:
        """Read a long prompt in pieces, all of it but the last one."""
        row, queue = grower.row, self._queue(grower.row, depth)
        while (start := queue.start) + PIECE < len(row) - depth:
            where = PassRow.stretch(row.whole_tables(self._cache(depth).kinds), start, PIECE)
            token_ids = row.tokens_from(start + depth, start + depth + PIECE)
            read = _Read(where, queue.states_ND[:PIECE], token_ids, [], start, PIECE, 0)
            pass_input, output = self._pass(depth, [read])
            self._hand_on(row, read, pass_input.split(self.heads.feedback(output))[0], depth)

    def _pass(self, depth: int, reads: list[_Read]) -> tuple[PassInput, States]:
        heads, cache = self.heads, self._cache(depth)
        pass_input = PassInput.build(cache, [read.where for read in reads], heads.device)
        output = heads.step(
            depth,
            pass_input.states([read.states_ND for read in reads]),
            heads.trunk.embed(pass_input.token_ids([read.token_ids for read in reads])),
            pass_input.positions_BT,
            pass_input.masks,
            cache,
        )
        return pass_input, output

    def _keep(self, grower: Branches, read: _Read, states_ND: torch.Tensor, depth: int) -> None:
        """Hand the states to the next depth: true ones to its queue, for good; each branch's own by its node."""
        num_own = 1 if self.heads.config.unrolled else read.num_branch
        for node, end in zip(grower.frontier, read.ends, strict=True):
            grower.states[node] = states_ND[end + 1 - num_own : end + 1]
        if not (self.heads.config.unrolled and depth > 1):
            self._hand_on(grower.row, read, states_ND, depth)

    def _hand_on(self, row: Sequence, read: _Read, states_ND: torch.Tensor, depth: int) -> None:
        """States of true tokens wait for the next module; this one has read what they were made from."""
        if depth < len(self.caches) and (read.num_true or self._rows[row][depth] is None):
            self._push(row, depth, read.start, states_ND[: read.num_true])
        self._queue(row, depth).drop_before(read.start + read.num_true)

    def _cache(self, depth: int) -> KVCache:
        return self.caches[0 if self.heads.config.unrolled else depth - 1]

    def _queue(self, row: Sequence, depth: int) -> StateQueue:
        queue = self._rows[row][depth - 1]
        assert queue is not None
        return queue

    def _push(self, row: Sequence, stream: int, index: int, states_ND: torch.Tensor) -> None:
        queue = self._rows[row][stream]
        if queue is None:
            self._rows[row][stream] = StateQueue(index, states_ND)
        else:
            queue.extend(index, states_ND)

    def _choose(self, logits_FV: torch.Tensor, growers: list[Branches]) -> None:
        grow_all(growers, logits_FV, self.heads)

    @property
    def num_bytes(self) -> int:
        """Memory of the heads' weights, and of their keys and values."""
        return heads_num_bytes(self.heads) + sum(cache.num_bytes for cache in self.caches)


def _read_queue(grower: Branches, queue: StateQueue, depth: int, kinds: Items[str]) -> _Read:
    """What the module of ``depth`` has not read for good: pairs of true tokens once, drafted ones for each branch."""
    row, start = grower.row, queue.start
    last = len(row) - 2 + grower.lead  # index of the newest trunk state
    first = max(start, len(row) - depth)  # from here on the pair's token is drafted
    num_true, num_branch = first - start, last + 1 - first
    token_ids = row.tokens_from(start + depth, first + depth)
    states = [queue.states_ND[:num_true]]
    positions, entries = list(range(start, first)), list(range(start, first))
    seen: list[list[int] | None] = [None] * num_true
    for i, node in enumerate(grower.frontier if num_branch else []):
        prefix = grower.draft.prefix(node)
        token_ids += prefix[first + depth - len(row) :]
        states.append(queue.states_ND[num_true:])
        if (num_carried := num_branch - len(states[-1])) > 0:
            states.append(grower.states[grower.draft.parents[node]][-num_carried:])
        positions += range(first, last + 1)
        begin = first if i == 0 else last + 1 + (i - 1) * num_branch
        entries += range(begin, begin + num_branch)
        grower.entries[node] = begin + num_branch - 1
        seen += [list(range(begin, begin + j + 1)) for j in range(num_branch)]
    ends = [num_true + (i + 1) * num_branch - 1 for i in range(len(grower.frontier))]
    is_chain = len(grower.frontier) == 1
    where = PassRow(row.whole_tables(kinds), first, positions, entries, None if is_chain else seen)
    return _Read(where, torch.cat(states), token_ids, ends, start, num_true, num_branch)


def _read_behind(grower: Branches, kinds: Items[str]) -> _Read:
    """One module for every depth: each node of the frontier is read behind the true entries and its own branch."""
    row, draft = grower.row, grower.draft
    for node in grower.frontier:
        grower.entries[node] = len(row) - 1 + len(grower.entries)
    entries = [grower.entries[node] for node in grower.frontier]
    seen: list[list[int] | None] = [[grower.entries[n] for n in draft.path(node)] for node in grower.frontier]
    where = PassRow(
        row.whole_tables(kinds),
        len(row) - 1,
        [len(row) - 2 + grower.depth] * len(entries),
        entries,
        None if grower.is_chain else seen,
    )
    states_ND = torch.cat([grower.states[draft.parents[node]] for node in grower.frontier])
    return _Read(where, states_ND, [draft.token_ids[n] for n in grower.frontier], list(range(len(entries))), 0, 0, 1)
