"""Rows with blocks of their own, for drafters and caches that are tried without an engine."""

from __future__ import annotations

from foretell.config import SamplingParams
from foretell.decoding.blocks import FULL, BlockPool, BlockTable
from foretell.decoding.sequence import Sequence as Row

SLIDING = "sliding_attention"


def pools_of(num_blocks: int = 40, *kinds: str) -> dict[str, BlockPool]:
    """A pool of ``num_blocks`` for each kind, full attention included."""
    return {kind: BlockPool(num_blocks) for kind in (FULL, *kinds)}


def row_of(
    prompt: list[int],
    pools: dict[str, BlockPool],
    depth: int = 3,
    room: int = 64,
    params: SamplingParams | None = None,
    window: int = 512,
    vocab_size: int = 260,
) -> Row:
    """A row that has room for ``room`` entries behind its prompt."""
    row = Row(prompt, params or SamplingParams(), depth, window, frozenset(), None, vocab_size)
    row.tables = {kind: BlockTable(pool) for kind, pool in pools.items()}
    for table in row.tables.values():
        table.reserve(len(prompt) + room)
    return row


def assert_partition(pool: BlockPool, tables: list[BlockTable]) -> None:
    """Every block is free, idle or held; it has as many holders as tables hold it; nothing is lost."""
    held: dict[int, int] = {}
    for table in tables:
        assert len(set(table.blocks)) == len(table.blocks), "a row holds a block twice"
        for block in table.blocks:
            held[block] = held.get(block, 0) + 1
    assert [pool.holders(block) for block in range(pool.num_blocks)] == [
        held.get(block, 0) for block in range(pool.num_blocks)
    ]
    free, idle = set(pool._free), set(pool._idle)
    assert not free & idle and not free & held.keys() and not idle & held.keys()
    assert free | idle | held.keys() == set(range(pool.num_blocks))
    assert pool.num_held == len(held) and pool.num_available == len(free) + len(idle)
    assert not free & pool._key_of.keys() and idle <= pool._key_of.keys()
