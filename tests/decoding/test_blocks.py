"""BlockPool and BlockTable as a state machine: no block is lost, held by mistake, or found with another text in it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from foretell.decoding.blocks import BLOCK_SIZE, BlockPool, BlockTable, OutOfBlocks
from tests.decoding.pooled import assert_partition

WINDOW = 24


class Text:
    """A row: the tokens it has written, the first ``num_final`` of them for good."""

    def __init__(self, token_ids: list[int], table: BlockTable) -> None:
        self.token_ids = token_ids
        self.table = table
        self.num_final = 0
        self.uids: list[int] = []


class BlocksMachine(RuleBasedStateMachine):
    """Rows grow, are rewound, share beginnings, give way and end. ``written``: the token in every entry of the pool."""

    num_shared = 0
    num_woken = 0  # idle blocks that are shared

    @initialize(num_blocks=st.integers(3, 6), sliding=st.sampled_from([False, False, True]))
    def begin(self, num_blocks: int, sliding: bool) -> None:
        self.pool = BlockPool(num_blocks)
        self.window = WINDOW if sliding else None
        self.rows: list[Text] = []
        self.ended: list[list[int]] = [[]]
        self.written: dict[int, int] = {}

    @rule(data=st.data(), drafted=st.booleans(), token_id=st.integers(0, 1), count=st.integers(0, 40))
    def add(self, data: st.DataObject, drafted: bool, token_id: int, count: int) -> None:
        """A new row, whose text may begin as another's; what is found is what it says."""
        others = self.ended + [row.token_ids for row in self.rows]
        text = data.draw(st.sampled_from(others)) + [token_id] * count
        row = Text([], BlockTable(self.pool, data.draw(st.integers(-1, self.pool.num_blocks)), self.window))
        if self.window is None:
            blocks, row.uids = self.pool.find(text, drafted)
            assert len(blocks) == len(row.uids) <= len(text) // BLOCK_SIZE
            assert not drafted or set(blocks) <= self.pool._drafted
            type(self).num_shared += len(blocks)
            type(self).num_woken += sum(self.pool.holders(block) == 0 for block in blocks)
            row.table.share(blocks)
            row.num_final = len(blocks) * BLOCK_SIZE
            row.token_ids = text[: row.num_final]
            assert [self.written[row.table.physical(e)] for e in range(row.num_final)] == row.token_ids
        self.rows.append(row)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), token_id=st.integers(0, 1), count=st.integers(1, 40), is_final=st.booleans())
    def append(self, data: st.DataObject, token_id: int, count: int, is_final: bool) -> None:
        """Write behind the final tokens: what was written there before and was not final is gone."""
        row, token_ids = data.draw(st.sampled_from(self.rows)), [token_id] * count
        held, available = list(row.table.blocks), self.pool.num_available
        length = row.num_final + len(token_ids)
        needed = -(-length // BLOCK_SIZE) - row.table.num_entries // BLOCK_SIZE
        try:
            row.table.reserve(length)
        except OutOfBlocks:
            assert needed > available
            assert (row.table.blocks, self.pool.num_available) == (held, available)
            return
        assert max(0, needed) <= available and row.table.num_entries >= length
        row.token_ids = row.token_ids[: row.num_final] + token_ids
        for entry in range(row.num_final, length):
            place = row.table.physical(entry)
            assert self.pool.holders(place // BLOCK_SIZE) == 1, "a shared block is written to"
            self.written[place] = row.token_ids[entry]
        if is_final:
            self.make_final(row, length, is_drafted=data.draw(st.booleans()))

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), is_drafted=st.booleans())
    def commit(self, data: st.DataObject, is_drafted: bool) -> None:
        """Some of what was written is final; the rest is rewound, which costs nothing."""
        row = data.draw(st.sampled_from(self.rows))
        self.make_final(row, data.draw(st.integers(row.num_final, len(row.token_ids))), is_drafted)

    def make_final(self, row: Text, length: int, is_drafted: bool) -> None:
        """Full blocks become known."""
        row.num_final = length
        row.token_ids = row.token_ids[: row.num_final]
        row.table.commit(row.num_final)
        for i in range(len(row.uids), row.num_final // BLOCK_SIZE if self.window is None else 0):
            tokens = row.token_ids[i * BLOCK_SIZE : (i + 1) * BLOCK_SIZE]
            before = row.uids[-1] if i else 0
            row.uids.append(self.pool.remember(row.table.blocks[i], before, tokens))
            if is_drafted:
                self.pool.mark_drafted(row.table.blocks[i], before, tokens)  # which may not be the known one

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """Finished, aborted or preempted."""
        row = self.rows.pop(data.draw(st.integers(0, len(self.rows) - 1)))
        self.ended.append(row.token_ids[: row.num_final])
        row.table.release()
        assert row.table.num_entries == 0

    @invariant()
    def every_block_is_somewhere(self) -> None:
        if hasattr(self, "pool"):
            assert_partition(self.pool, [row.table for row in self.rows])
            assert self.pool.peak_used >= self.pool.num_held

    @invariant()
    def entries_that_may_be_looked_at_are_there(self) -> None:
        """All of a row, or those that the next query's window covers; and only few more."""
        for row in getattr(self, "rows", []):
            first = 0 if self.window is None else max(0, row.num_final - self.window + 1)
            assert row.table.first_entry <= first
            entries = range(first, row.num_final)
            assert [self.written[row.table.physical(e)] for e in entries] == row.token_ids[first : row.num_final]
            assert row.table.num_entries >= len(row.token_ids)
            if row.table.num_dropped:
                assert row.table.first_entry > first - BLOCK_SIZE

    @invariant()
    def known_blocks_hold_their_text(self) -> None:
        """Also the idle ones."""
        for (_, tokens), block in getattr(self, "pool", BlockPool(1))._known.items():
            assert [self.written[block * BLOCK_SIZE + i] for i in range(BLOCK_SIZE)] == list(tokens)

    def teardown(self) -> None:
        for row in getattr(self, "rows", []):
            row.table.release()
        if hasattr(self, "pool"):
            assert (self.pool.num_held, self.pool.num_available) == (0, self.pool.num_blocks)


BlocksMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None, derandomize=True)


class TestAnyOrder(BlocksMachine.TestCase):  # type: ignore[name-defined, misc]
    @classmethod
    def tearDownClass(cls) -> None:
        assert BlocksMachine.num_shared > BlocksMachine.num_woken > 0


def filled(pool: BlockPool, token_ids: list[int], drafted: bool = True) -> tuple[BlockTable, list[int]]:
    """A row whose full blocks are known."""
    table, uids = BlockTable(pool), []
    table.reserve(len(token_ids))
    for i in range(len(token_ids) // BLOCK_SIZE):
        tokens = token_ids[i * BLOCK_SIZE : (i + 1) * BLOCK_SIZE]
        before = uids[-1] if i else 0
        uids.append(pool.remember(table.blocks[i], before, tokens))
        if drafted:
            pool.mark_drafted(table.blocks[i], before, tokens)
    return table, uids


def test_a_block_is_found_by_all_that_comes_before_it() -> None:
    pool = BlockPool(20)
    text = list(range(40))
    table, _ = filled(pool, text)
    assert pool.find(text, True)[0] == table.blocks[:2]
    assert pool.find(text[:31], True)[0] == table.blocks[:1]
    assert pool.find([99, *text[1:]], True) == ([], [])
    assert pool.find([*text[:16], 99, *text[17:]], True)[0] == table.blocks[:1]
    assert pool.find(text[16:], True) == ([], [])  # the same block at another place is another text
    other, _ = filled(pool, [7] * 16 + text[16:32])
    assert pool.find([7] * 16 + text[16:32], True)[0] == other.blocks


def test_a_shared_block_stays_until_its_last_holder_leaves() -> None:
    pool = BlockPool(3)
    first, _ = filled(pool, list(range(16)))
    second = BlockTable(pool)
    second.share(pool.find(list(range(16)), True)[0])
    assert pool.holders(0) == 2 and (pool.num_held, pool.peak_used) == (1, 1)
    first.release()
    assert pool.holders(0) == 1
    assert_partition(pool, [second])
    second.release()
    assert_partition(pool, [])
    woken = BlockTable(pool)
    woken.share(pool.find(list(range(16)), True)[0])
    assert_partition(pool, [woken])  # and no longer idle


def test_what_was_not_drafted_for_is_not_found_for_drafts() -> None:
    pool = BlockPool(4)
    table, uids = filled(pool, list(range(32)), drafted=False)
    assert pool.find(list(range(32)), drafted=True) == ([], [])
    assert pool.find(list(range(32)), drafted=False)[0] == table.blocks
    pool.mark_drafted(table.blocks[1], uids[0], list(range(16, 32)))
    assert pool.find(list(range(32)), drafted=True) == ([], [])
    pool.mark_drafted(table.blocks[0], 0, list(range(16)))
    assert pool.find(list(range(32)), drafted=True)[0] == table.blocks


@pytest.mark.parametrize("is_held", [True, False])
def test_a_block_that_was_drafted_for_takes_the_place_of_one_that_was_not(is_held: bool) -> None:
    """The same text, read first without a drafter: what is found from then on serves both."""
    pool, text = BlockPool(6), list(range(48))
    plain, uids = filled(pool, text[:32], drafted=False)
    after, _ = filled(pool, text, drafted=False)  # knows its third block after the plain ones
    if not is_held:
        plain.release()
    drafting, same_uids = filled(pool, text[:16])
    assert same_uids == uids[:1]
    assert pool.find(text, drafted=True)[0] == drafting.blocks
    assert pool.find(text, drafted=False)[0][:1] == drafting.blocks
    assert len(pool.find(text, drafted=False)[0]) == 3  # what comes after is still found
    assert_partition(pool, [after, drafting, *([plain] if is_held else [])])


def test_a_block_with_a_new_text_has_not_been_drafted_for() -> None:
    """Whatever its entries in the drafter's caches were made for before."""
    pool = BlockPool(1)
    filled(pool, [1] * 16)[0].release()
    filled(pool, [2] * 16, drafted=False)[0].release()
    assert pool.find([1] * 16, drafted=False) == ([], [])
    assert len(pool.find([2] * 16, drafted=False)[0]) == 1
    assert pool.find([2] * 16, drafted=True) == ([], [])


def test_two_rows_with_one_text_have_one_known_block() -> None:
    pool = BlockPool(4)
    (first, uids), (second, same) = filled(pool, list(range(16))), filled(pool, list(range(16)))
    assert uids == same and pool.find(list(range(16)), True)[0] == first.blocks
    second.release()
    assert pool.num_available == 3 and len(pool._idle) == 0  # nobody will ever find the second
    first.release()
    assert pool.find(list(range(16)), True)[0] == [0]


def test_the_oldest_idle_block_is_forgotten_first_and_a_beginning_last() -> None:
    pool = BlockPool(5)
    old, new = list(range(32)), list(range(100, 132))
    for text in (old, new):
        filled(pool, text)[0].release()
    taken = BlockTable(pool)
    taken.reserve(2 * BLOCK_SIZE)  # the free one, and the end of the old text
    assert len(pool.find(old, True)[0]) == 1 and len(pool.find(new, True)[0]) == 2
    taken.reserve(4 * BLOCK_SIZE)
    assert pool.find(old, True)[0] == [] and len(pool.find(new, True)[0]) == 1
    taken.reserve(5 * BLOCK_SIZE)
    with pytest.raises(OutOfBlocks):
        taken.reserve(5 * BLOCK_SIZE + 1)


def test_blocks_lie_side_by_side_where_they_can() -> None:
    pool = BlockPool(12)
    rows = [BlockTable(pool, home) for home in (0, 6)]
    for length in (1, 17, 33, 49):
        for row in rows:
            row.reserve(length)
    assert [row.blocks for row in rows] == [[0, 1, 2, 3], [6, 7, 8, 9]]
    assert all(b == a + 1 for row in rows for a, b in pairwise(row.blocks))


def test_a_block_is_not_released_by_who_does_not_hold_it() -> None:
    pool = BlockPool(2)
    with pytest.raises(ValueError, match="block 1 is released by a row that does not hold it"):
        pool.release(1)


@pytest.mark.parametrize("window", [1, 15, 16, 17, 40])
def test_a_window_keeps_what_the_next_query_sees(window: int) -> None:
    """For every length: the query at index ``length`` looks at the last ``window`` tokens, its own included."""
    table = BlockTable(BlockPool(20), window=window)
    for length in range(1, 150):
        table.reserve(length + 1)
        table.commit(length)
        first = max(0, length - window + 1)
        assert first - BLOCK_SIZE < table.first_entry <= first
        assert len({table.physical(e) for e in range(first, length + 1)}) == length + 1 - first
