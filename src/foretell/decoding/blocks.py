"""BlockPool and BlockTable: which row holds which blocks of cache entries. Numbers only; the tensors are KVCache's.

A block is ``BLOCK_SIZE`` consecutive entries of one row in every cache of the engine: the trunk's, the heads', a draft
model's. Blocks are counted by holders, so that rows with the same beginning share them (prefix reuse).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

BLOCK_SIZE = 16
"""Entries a block holds."""
FULL = "full_attention"
"""The kind whose blocks hold all entries of a row; every engine has a pool of it."""


class OutOfBlocks(Exception):
    """No block is free; the scheduler then takes back those of a row."""


class BlockPool:
    """A fixed number of blocks: free, held by rows, or idle: held by nobody, but kept because their text is known.

    A known block is found by the block before it and its own tokens, so that a match is exact, never a hash collision.
    ``is_drafted`` marks blocks whose entries in the drafter's caches are final too.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.peak_used = 0
        self._holders = [0] * num_blocks
        self._free = OrderedDict.fromkeys(range(num_blocks))
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}
        self._key_of: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._uid_of: dict[int, int] = {}
        self._drafted: set[int] = set()
        self._num_uids = 0

    @property
    def num_available(self) -> int:
        """Blocks that a row can get now; idle ones are forgotten for it."""
        return len(self._free) + len(self._idle)

    @property
    def num_held(self) -> int:
        """Blocks that some row holds."""
        return self.num_blocks - self.num_available

    def holders(self, block: int) -> int:
        """How many rows hold ``block``."""
        return self._holders[block]

    def allocate(self, wish: int = -1) -> int:
        """A block for one holder: ``wish`` if it is free, so that a row's blocks lie side by side, else any."""
        if wish in self._free:
            del self._free[wish]
            block = wish
        elif self._free:
            block, _ = self._free.popitem(last=False)
        elif self._idle:
            block, _ = self._idle.popitem(last=False)
            self._forget(block)
        else:
            raise OutOfBlocks
        self._holders[block] = 1
        self.peak_used = max(self.peak_used, self.num_held)
        return block

    def retain(self, block: int) -> None:
        """One more holder of a known block."""
        self._idle.pop(block, None)
        self._holders[block] += 1
        self.peak_used = max(self.peak_used, self.num_held)

    def release(self, block: int) -> None:
        """One holder less; without any the block is free, or idle where its text is known."""
        if self._holders[block] < 1:
            raise ValueError(f"block {block} is released by a row that does not hold it")
        self._holders[block] -= 1
        if self._holders[block] == 0:
            (self._idle if block in self._key_of else self._free)[block] = None

    def remember(self, block: int, before: int, token_ids: Sequence[int]) -> int:
        """Make a full block known by its text, after the known text with uid ``before`` (0 = the start).

        Returns the text's uid, also where another block with this text is known already.
        """
        key = (before, tuple(token_ids))
        known = self._known.get(key)
        if known is None:
            self._num_uids += 1
            self._known[key], self._key_of[block], self._uid_of[block] = block, key, self._num_uids
            known = block
        return self._uid_of[known]

    def mark_drafted(self, block: int, before: int, token_ids: Sequence[int]) -> None:
        """The drafter's entries of a block with this text are final. It takes the place of a known one without them."""
        key = (before, tuple(token_ids))
        known = self._known.get(key, block)
        if known != block and known not in self._drafted:
            uid = self._uid_of[known]
            self._forget(known)
            if known in self._idle:
                del self._idle[known]
                self._free[known] = None
            self._known[key], self._key_of[block], self._uid_of[block] = block, key, uid
        if block in self._key_of:
            self._drafted.add(block)

    def find(self, token_ids: Sequence[int], drafted: bool) -> tuple[list[int], list[int]]:
        """Blocks, and the uids of their texts, that hold the longest known beginning of ``token_ids``.

        ``drafted``: only those whose entries in the drafter's caches are final.
        """
        blocks: list[int] = []
        uids = [0]
        for start in range(0, len(token_ids) - BLOCK_SIZE + 1, BLOCK_SIZE):
            block = self._known.get((uids[-1], tuple(token_ids[start : start + BLOCK_SIZE])))
            if block is None or (drafted and block not in self._drafted):
                break
            blocks.append(block)
            uids.append(self._uid_of[block])
        return blocks, uids[1:]

    def wipe(self, block: int) -> bool:
        """Forget the text of a block that is to be zeroed. False where other rows hold it too: then it stays."""
        if self._holders[block] > 1:
            return False
        if block in self._key_of:
            self._forget(block)
        return True

    def _forget(self, block: int) -> None:
        del self._known[self._key_of.pop(block)]
        del self._uid_of[block]
        self._drafted.discard(block)


class BlockTable:
    """The blocks of one row, in the order of its entries. ``home``: the block it would like to start with.

    ``window``: layers look back so many tokens only, so that older blocks are given back as the row grows.
    """

    def __init__(self, pool: BlockPool, home: int = -1, window: int | None = None) -> None:
        self.pool = pool
        self.blocks: list[int] = []
        self.num_dropped = 0
        self.window = window
        self._home = home

    @property
    def first_entry(self) -> int:
        """Entries below this one have been given back."""
        return self.num_dropped * BLOCK_SIZE

    @property
    def num_entries(self) -> int:
        """Entries that there is room for, given back ones included."""
        return (self.num_dropped + len(self.blocks)) * BLOCK_SIZE

    def share(self, blocks: Sequence[int]) -> None:
        """Start with known blocks of others."""
        for block in blocks:
            self.pool.retain(block)
            self.blocks.append(block)

    def reserve(self, length: int) -> None:
        """Make room for ``length`` entries, or raise OutOfBlocks and change nothing."""
        needed = -(-length // BLOCK_SIZE) - self.num_dropped - len(self.blocks)
        if needed > self.pool.num_available:
            raise OutOfBlocks
        for _ in range(needed):
            self.blocks.append(self.pool.allocate(self.blocks[-1] + 1 if self.blocks else self._home))

    def commit(self, length: int) -> None:
        """The row has ``length`` final entries: give back blocks that no later query looks at."""
        if self.window is None:
            return
        while self.blocks and self.first_entry + BLOCK_SIZE <= length - self.window + 1:
            self.pool.release(self.blocks.pop(0))
            self.num_dropped += 1

    def release(self) -> None:
        """Give everything back, the end first: a beginning is more often shared, so it is kept longer."""
        while self.blocks:
            self.pool.release(self.blocks.pop())
        self.num_dropped = 0

    def physical(self, entry: int) -> int:
        """Where the row's ``entry`` lies in the pool."""
        block, offset = divmod(entry, BLOCK_SIZE)
        return self.blocks[block - self.num_dropped] * BLOCK_SIZE + offset
