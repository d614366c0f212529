"""KVCache: keys and values of one decoder in blocks of a pool; rows reach them through their block tables."""

from __future__ import annotations

import math
import mmap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from foretell.decoding.blocks import BLOCK_SIZE, FULL, BlockPool, BlockTable
from foretell.decoding.recurrent import RecurrentStates
from foretell.models.attention import RowLayout

_KEY_BLOCK = 64
"""Keys a pass sees at a time; attention kernels work in such blocks."""
_SLACK = _KEY_BLOCK // BLOCK_SIZE + 1
"""Blocks behind the pool: the last one's view may reach there, and padding is written there."""

_RECURRENT_METHODS = frozenset(
    ("get_conv_state", "update_conv_state", "get_recurrent_state", "update_recurrent_state", "is_recording_past")
)


@dataclass
class KeySpan:
    """What one pass writes and reads in the layers of one kind: entries of the pool.

    ``first_B``: the row's entry that key 0 is; ``num_keys``: S, as many for every row.
    """

    write_P: torch.Tensor
    run: tuple[int, int] | None
    read_blocks: torch.Tensor
    stretch: tuple[int, int] | None
    first_B: list[int]
    num_keys: int

    @classmethod
    def build(
        cls, tables: Sequence[BlockTable], entries: Sequence[Sequence[int]], scratch: int, device: torch.device
    ) -> KeySpan:
        """``entries[b]``: what row b writes, its highest not always last; -1 = nowhere (padding)."""
        written = [scratch if e < 0 else t.physical(e) for t, row in zip(tables, entries, strict=True) for e in row]
        first = [table.first_entry for table in tables]
        needed = max(max(row) + 1 - start for row, start in zip(entries, first, strict=True))
        num_keys = -(-needed // _KEY_BLOCK) * _KEY_BLOCK
        num_blocks = num_keys // BLOCK_SIZE
        blocks = [[*t.blocks[:num_blocks], *[t.blocks[0]] * (num_blocks - len(t.blocks))] for t in tables]
        is_run = written == list(range(written[0], written[0] + len(written)))
        return cls(
            torch.tensor(written, device=device),
            (written[0], written[-1] + 1) if is_run else None,
            torch.tensor(blocks, device=device).flatten(),
            _stretch([t.blocks[:num_blocks] for t in tables], (scratch + 1) // BLOCK_SIZE - num_blocks),
            first,
            num_keys,
        )

    def on(self, device: torch.device) -> KeySpan:
        """The same for a layer on another device than the pass began on."""
        if self.write_P.device == device:
            return self
        return replace(self, write_P=self.write_P.to(device), read_blocks=self.read_blocks.to(device))


def _stretch(blocks: list[list[int]], last_start: int) -> tuple[int, int] | None:
    """(first block, distance from row to row) where every row's blocks lie side by side and rows evenly apart.

    No row may start behind block ``last_start``, or what it reads would leave the buffer.
    """
    starts = [row[0] for row in blocks]
    step = starts[1] - starts[0] if len(starts) > 1 else 0
    if step < 0 or starts[-1] > last_start or any(s != starts[0] + b * step for b, s in enumerate(starts)):
        return None
    if any(row != list(range(row[0], row[0] + len(row))) for row in blocks):
        return None
    return starts[0], step


class KVCache:
    """Looks like a transformers cache to the layers (``update``), and like entries in blocks to the step.

    ``kinds``: the kind of every layer; rows have a block table for each kind. ``pools``: where those
    come from, by kind.
    ``window``: how far sliding layers look back. ``recurrent``: the states of layers that keep no keys.
    A pass writes behind a row's final entries; what is not committed is overwritten by the next pass, so that a rewind
    costs nothing. Keys come in whole blocks of 64, so that the attention kernel, and how it rounds, depends on the text
    alone and not on how far ahead a draft reaches.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        pools: dict[str, BlockPool],
        window: int | None = None,
        recurrent: RecurrentStates | None = None,
    ) -> None:
        self.kinds = [kind if kind in pools else FULL for kind in kinds]
        self.pools = pools
        self.recurrent = recurrent
        self.window = window
        self.layout: RowLayout | None = None
        self._keys: list[torch.Tensor | None] = [None] * len(kinds)
        self._values: list[torch.Tensor | None] = [None] * len(kinds)
        self.spans: dict[str, KeySpan] = {}

    def scratch(self, kind: str) -> int:
        """The pool entry that padding is written to."""
        return (self.pools[kind].num_blocks + _SLACK) * BLOCK_SIZE - 1

    def begin(self, spans: dict[str, KeySpan], layout: RowLayout | None) -> None:
        """Announce a pass: what it writes and reads in the layers of each kind."""
        self.spans = spans
        self.layout = layout

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by each layer with (1, heads, P, d) or (B, heads, N, d); returns what rows see, (B, heads, S, d)."""
        span = self.spans[self.kinds[layer_idx]].on(keys.device)
        return (
            _write_and_read(self._buffer(self._keys, layer_idx, keys.shape[1], keys.shape[3], keys), keys, span),
            _write_and_read(
                self._buffer(self._values, layer_idx, values.shape[1], values.shape[3], values), values, span
            ),
        )

    def buffers(self, num_heads: int, size: int, like: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Keys and values of every layer, (num_heads, blocks, BLOCK_SIZE, size), for kernels that find their way."""
        keys, values = (
            [self._buffer(buffers, layer_idx, num_heads, size, like) for layer_idx in range(len(self.kinds))]
            for buffers in (self._keys, self._values)
        )
        return keys, values

    def compact(self, table_of: dict[str, BlockTable], sources: Sequence[int], target: int) -> None:
        """Copy a row's entries ``sources`` to ``target``, ``target + 1`` and so on: the accepted path of a tree."""
        for layer_idx, kind in enumerate(self.kinds):
            table = table_of[kind]
            for buffer in (self._keys[layer_idx], self._values[layer_idx]):
                if buffer is not None:
                    entries = buffer.flatten(1, 2)
                    read = torch.tensor([table.physical(e) for e in sources], device=entries.device)
                    written = [table.physical(target + i) for i in range(len(sources))]
                    entries[:, torch.tensor(written, device=entries.device)] = entries[:, read]

    def wipe(self, wiped: Collection[tuple[BlockPool, int]]) -> None:
        """Zero blocks: what is not a number would spread to the next row that holds them, masked or not."""
        for kind, *buffers in zip(self.kinds, self._keys, self._values, strict=True):
            blocks = [block for pool, block in wiped if pool is self.pools[kind]]
            for buffer in buffers:
                if buffer is not None and blocks:
                    buffer[:, blocks] = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """What transformers asks of a cache; positions are always given explicitly, so the answer is not used."""
        return next(iter(self.spans.values())).num_keys

    def __getattr__(self, name: str) -> Any:
        """Recurrent layers ask for their states by name; see RecurrentStates."""
        if name in _RECURRENT_METHODS and (recurrent := self.__dict__.get("recurrent")) is not None:
            return getattr(recurrent, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @property
    def num_bytes(self) -> int:
        """Memory of the blocks that rows have come to hold at one time."""
        blocks = {kind: pool.peak_used for kind, pool in self.pools.items()}
        return sum(blocks[kind] * size for kind, size in self._block_sizes())

    def _block_sizes(self) -> Iterator[tuple[str, int]]:
        for kind, *buffers in zip(self.kinds, self._keys, self._values, strict=True):
            for buffer in buffers:
                if buffer is not None:
                    yield kind, buffer.shape[0] * BLOCK_SIZE * buffer.shape[3] * buffer.element_size()

    def _buffer(
        self, buffers: list[torch.Tensor | None], layer_idx: int, num_heads: int, size: int, like: torch.Tensor
    ) -> torch.Tensor:
        buffer = buffers[layer_idx]
        if buffer is None:
            num_blocks = self.pools[self.kinds[layer_idx]].num_blocks + _SLACK
            buffer = _zeros((num_heads, num_blocks, BLOCK_SIZE, size), like)
            buffers[layer_idx] = buffer
        return buffer


def _write_and_read(buffer: torch.Tensor, new: torch.Tensor, span: KeySpan) -> torch.Tensor:
    """``buffer``: (heads, blocks, BLOCK_SIZE, d)."""
    num_heads, num_blocks, _, size = buffer.shape
    flat = buffer.view(num_heads, num_blocks * BLOCK_SIZE, size)
    packed = new[0] if new.shape[0] == 1 else new.transpose(0, 1).flatten(1, 2)
    if span.run is not None:
        flat[:, span.run[0] : span.run[1]] = packed
    else:
        flat.index_copy_(1, span.write_P, packed)
    num_rows = len(span.first_B)
    if span.stretch is not None:
        first, step = span.stretch
        strides = (step * BLOCK_SIZE * size, num_blocks * BLOCK_SIZE * size, size, 1)
        shape = (num_rows, num_heads, span.num_keys, size)
        return buffer.as_strided(shape, strides, buffer.storage_offset() + first * BLOCK_SIZE * size)
    gathered = buffer.index_select(1, span.read_blocks)
    return gathered.view(num_heads, num_rows, span.num_keys, size).transpose(0, 1)


def _zeros(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Zeros that take no memory on a CPU until they are written: a pool is mostly empty."""
    if like.device != torch.device("cpu"):
        return torch.zeros(shape, dtype=like.dtype, device=like.device)
    # Not numpy's zeros: those ask for pages of 2 MiB, and the first entry of each would then take that much.
    num_bytes = math.prod(shape) * like.element_size()
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    return torch.frombuffer(mmap.mmap(-1, num_bytes, **private), dtype=torch.uint8).view(like.dtype).view(shape)
