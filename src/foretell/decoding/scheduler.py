"""Scheduler: which rows a step advances, by how much, and who holds the memory for it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from foretell.decoding.blocks import BLOCK_SIZE, FULL, BlockPool, BlockTable, OutOfBlocks
from foretell.decoding.drafter import Drafter
from foretell.decoding.sequence import Sequence
from foretell.decoding.shape import Shape
from foretell.types import Draft

ShapeRows = Callable[[list[Sequence], int], list[Shape]]
"""How much is drafted for each of the rows that decode, beside so many tokens of prompts."""


@dataclass
class Work:
    """One row's part in a step: its tokens up to ``stop`` are read, ``num_read`` of them; ``shape`` is drafted.

    ``is_judged``: the root is read, so that the row gets a token. As it was planned: the step makes the row longer.
    What became of it is noted as it happens: the ``draft``, how many of its tokens the row took, and how many in all.
    """

    row: Sequence
    stop: int
    shape: Shape
    draft: Draft = field(default_factory=Draft)
    num_accepted: int = 0
    num_taken: int = 0
    num_read: int = field(init=False)
    is_judged: bool = field(init=False)

    def __post_init__(self) -> None:
        self.num_read = self.stop - self.row.num_cached
        self.is_judged = self.stop == len(self.row)


class Scheduler:
    """Rows wait, run and leave between steps, first come, first served.

    A step reads at most ``max_step_tokens``: first what decoding rows need, then prompts, in chunks of what is left.
    Where memory is short drafts are dropped first; then the row that came last gives its blocks back and waits again,
    ahead of all others. ``width``: nodes a pass is padded to, for which there is room behind every row. ``forget`` is
    told of rows that hold nothing any more.
    """

    def __init__(
        self,
        pools: dict[str, BlockPool],
        max_batch: int,
        max_step_tokens: int,
        window: int | None = None,
        reuses_prefixes: bool = True,
        width: int = 1,
        forget: Callable[[Sequence], None] = lambda row: None,
    ) -> None:
        self.pools = pools
        self.max_batch = max_batch
        self.max_step_tokens = max_step_tokens
        self.drafter: Drafter | None = None
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.num_preemptions = 0
        self.num_reused_tokens = 0
        self._window = window
        self._reuses_prefixes = reuses_prefixes
        self._width = width
        self._forget = forget

    def add(self, row: Sequence) -> None:
        """Put a new row at the end of the queue."""
        self.waiting.append(row)

    def remove(self, row: Sequence) -> None:
        """A row has ended, or is aborted: whatever it holds is given back."""
        if row in self.running:
            self.running.remove(row)
            self._release(row)
        elif row in self.waiting:
            self.waiting.remove(row)

    def plan(self, shape_rows: ShapeRows) -> list[Work]:
        """The next step's work, with room reserved for it; empty where nothing waits or runs."""
        decoding = [row for row in self.running if row.num_pending == 1]
        num_others = sum(row.num_pending for row in self.running if row.num_pending > 1) + self._num_joining()
        shapes = shape_rows(decoding, min(num_others, self.max_step_tokens))
        shape_of = dict(zip(decoding, shapes, strict=True))
        works: list[Work] = []
        budget, num_preemptions = self.max_step_tokens, self.num_preemptions
        kept = min(num_others, (budget - len(decoding)) // 2)  # for prompts: drafts do not keep them waiting
        for i, row in enumerate(decoding):
            if row not in self.running:  # gave its blocks to an older one
                continue
            kept += len(decoding) - 1 - i  # rows that still come, with a token each
            shape = self._fit(row, shape_of[row], budget - kept)
            kept -= len(decoding) - 1 - i
            if shape is not None:
                works.append(Work(row, len(row), shape))
                budget -= 1 + shape.num_nodes
        for row in [row for row in self.running if row.num_pending > 1]:
            budget -= self._read_prompt(row, budget, works)
        while self.waiting and len(self.running) < self.max_batch and budget > 0:
            # Memory that was just taken from a row is not given back to it in the same step.
            if self.num_preemptions > num_preemptions or not self._admit(self.waiting[0]):
                break
            budget -= self._read_prompt(self.waiting.popleft(), budget, works)
        running = set(self.running)
        return [work for work in works if work.row in running]

    def restart(self, rows: list[Sequence]) -> None:
        """A step failed: its rows give up what they hold and are read again; those that have ended go."""
        for row in reversed(rows):
            if row.finish_reason is not None:
                self.remove(row)
            elif row in self.running:
                self._preempt(row)

    def settle(self, work: Work) -> None:
        """The step is done: give back what no layer looks at any more, make full blocks known, drop an ended row."""
        row = work.row
        for table in row.tables.values():
            table.commit(row.num_cached)
        if row.error is None:
            self._remember(row)
        if row.finish_reason is not None:
            self.remove(row)

    def drafts_for(self, row: Sequence) -> bool:
        """True where the row may be drafted for, now or later."""
        return self.drafter is not None and row.depth != 0

    def _fit(self, row: Sequence, shape: Shape, budget: int) -> Shape | None:
        """Room for the root and its draft, or for the root alone; None where the row itself has to wait again."""
        chain = Shape.chain(min(shape.depth, budget - 1))
        for tried in (chain,) if shape.is_chain or 1 + shape.num_nodes > budget else (shape, chain):
            # Distinct modules write depth - 1 entries a branch.
            behind = tried.num_nodes if tried.is_chain else tried.num_nodes * tried.depth
            if tried.depth and self._reserve(row, len(row) + behind):
                return tried
        return Shape.chain(0) if self._reserve_or_preempt(row, len(row)) else None

    def _read_prompt(self, row: Sequence, budget: int, works: list[Work]) -> int:
        """Plan the next chunk of what the row has not read; returns its size."""
        if budget < 1 or row not in self.running:
            return 0
        stop = min(len(row), row.num_cached + budget)
        if not self._reserve_or_preempt(row, stop):
            return 0
        works.append(Work(row, stop, Shape.chain(0)))
        return stop - row.num_cached

    def _reserve(self, row: Sequence, length: int) -> bool:
        try:
            for table in row.tables.values():
                table.reserve(length + self._width)
        except OutOfBlocks:
            return False
        return True

    def _reserve_or_preempt(self, row: Sequence, length: int) -> bool:
        while not self._reserve(row, length):
            last = self.running[-1]
            self._preempt(last)
            if last is row:
                return False
        return True

    def _preempt(self, row: Sequence) -> None:
        """Its tokens stay; what was computed from them is given up, and read again later."""
        self.running.remove(row)
        self._release(row)
        self.waiting.appendleft(row)
        self.num_preemptions += 1

    def _release(self, row: Sequence) -> None:
        for table in row.tables.values():
            table.release()
        row.tables = {}
        row.num_cached = 0
        self._forget(row)
        if self.drafts_for(row) and self.drafter is not None:
            self.drafter.forget(row)

    def _num_joining(self) -> int:
        """Tokens of the waiting rows that there are places and memory for now."""
        num_tokens, num_blocks = 0, self.pools[FULL].num_available
        for row, _ in zip(self.waiting, range(self.max_batch - len(self.running)), strict=False):
            num_blocks -= -(-(len(row) + self._width) // BLOCK_SIZE)
            if num_blocks < 0 or self._must_wait_for_leader(row):
                break
            num_tokens += len(row)
        return num_tokens

    def _must_wait_for_leader(self, row: Sequence) -> bool:
        """Its prompt is being read by another one: by the trunk, or by the drafter, one step later."""
        leader = row.leader
        return leader in self.running and (leader.num_pending > 1 or len(leader.token_ids) < 1 + self.drafts_for(row))

    def _admit(self, row: Sequence) -> bool:
        """Let a waiting row run if there is room for all its tokens; it starts behind a beginning that is known."""
        if self._must_wait_for_leader(row):
            return False
        known, uids = self._known_beginning(row)
        needed = -(-(len(row) + self._width) // BLOCK_SIZE) - len(known)
        idle = sum(self.pools[FULL].holders(block) == 0 for block in known)
        if needed > self.pools[FULL].num_available - idle:
            return False
        used = {running.slot for running in self.running}
        row.slot = min(set(range(self.max_batch)) - used)
        if row.queue_s is None:  # a row that made room for others comes back
            row.queue_s = time.perf_counter() - row.asked_s
        row.tables = {
            kind: BlockTable(
                pool, row.slot * (pool.num_blocks // self.max_batch), self._window if kind != FULL else None
            )
            for kind, pool in self.pools.items()
        }
        row.tables[FULL].share(known)
        row.num_cached = len(known) * BLOCK_SIZE
        row.known_uids = uids
        row.num_drafted_blocks = len(known)
        self.num_reused_tokens += row.num_cached
        self.running.append(row)
        if self.drafts_for(row) and self.drafter is not None:
            self.drafter.admit(row)
        return True

    def _known_beginning(self, row: Sequence) -> tuple[list[int], list[int]]:
        """Blocks to share, and the uids of their texts. At least the last token is read anew: it gives the next one.

        A head's last entries of a block were made from the tokens behind it; where drafts are wanted a block counts
        only if the next one is known too.
        """
        if not self._reuses_prefixes or row.params.prompt_logprobs is not None:
            return [], []
        drafts = self.drafts_for(row)
        blocks, uids = self.pools[FULL].find(row.tokens_from(0), drafts)
        count = max(0, min(len(blocks) - drafts, (len(row) - 1) // BLOCK_SIZE))
        return blocks[:count], uids[:count]

    def _remember(self, row: Sequence) -> None:
        if not self._reuses_prefixes or FULL not in row.tables:
            return
        pool, blocks = self.pools[FULL], row.tables[FULL].blocks
        for i in range(len(row.known_uids), row.num_cached // BLOCK_SIZE):
            row.known_uids.append(pool.remember(blocks[i], *_text_of(row, i)))
        if self.drafts_for(row) and self.drafter is not None:
            num_final = min(self.drafter.num_final(row), row.num_cached)
            for i in range(row.num_drafted_blocks, num_final // BLOCK_SIZE):
                pool.mark_drafted(blocks[i], *_text_of(row, i))
                row.num_drafted_blocks = i + 1


def _text_of(row: Sequence, index: int) -> tuple[int, list[int]]:
    """What a block of the row is known by: the uid of the text before it, and its tokens."""
    before = row.known_uids[index - 1] if index else 0
    return before, row.tokens_from(index * BLOCK_SIZE, (index + 1) * BLOCK_SIZE)
