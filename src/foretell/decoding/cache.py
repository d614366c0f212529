"""KVCache: keys and values of every row in slots, with commit and rewind as changes of a length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_FIRST_CAPACITY = 256
_KEY_BLOCK = 64
"""Entries a pass sees at a time; attention kernels work in such blocks."""


class KVCache:
    """Looks like a transformers cache to the layers (``update``), and like slots of entries to the step.

    Entry i of slot s is valid for i < ``lengths[s]``. A pass writes behind the valid part; ``commit`` makes entries
    valid, and everything after them is thereby rewound. Buffers grow by doubling, up to ``max_length`` entries. The
    last column is scratch: padded tokens of a pass are written there, or behind a single row's own, and never read.
    A pass sees keys in whole blocks, so that the attention kernel, and how it rounds, depends on the text alone and
    not on how far ahead a draft reaches.
    """

    def __init__(self, num_slots: int, max_length: int) -> None:
        self.max_length = max_length
        self.lengths = [0] * num_slots
        self._capacity = min(max_length, _FIRST_CAPACITY)
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self._slots: list[int] = []
        self._slot_index = torch.empty(0, dtype=torch.long)
        self._entries_BN = torch.empty(0, dtype=torch.long)
        self._num_keys = 0
        self._run: tuple[int, int, int] | None = None  # (slot, first, stop) where one row writes one stretch

    def begin(
        self, slots: Sequence[int], entries: Sequence[Sequence[int]], num_nodes: int, device: torch.device
    ) -> int:
        """Announce a pass: ``entries[b]`` are the entries row b will write, padded with scratch up to ``num_nodes``.

        Returns the number of keys (S) every layer will see; masks must have that width.
        """
        needed = max(row[-1] + 1 for row in entries)
        self._num_keys = min(_whole_blocks(needed), max(needed, self.max_length))
        self._grow(self._num_keys)
        padded = [[*row, *[self._capacity] * (num_nodes - len(row))] for row in entries]
        self._slots = list(slots)
        self._slot_index = torch.tensor(self._slots, device=device)
        self._entries_BN = torch.tensor(padded, device=device)
        first, last = entries[0][0], entries[0][-1]
        # Padding may lie behind a single row's own entries: nothing there is valid, and nothing reads it.
        one_stretch = len(slots) == 1 and last == first + len(entries[0]) - 1 and first + num_nodes <= self._capacity
        self._run = (slots[0], first, first + num_nodes) if one_stretch else None
        return self._num_keys

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by each layer with (B, heads, N, d); returns all keys and values, (B, heads, S, d)."""
        while len(self._keys) <= layer_idx:
            for buffers, new in ((self._keys, keys), (self._values, values)):
                shape = (len(self.lengths), new.shape[1], self._capacity + 1, new.shape[3])
                buffers.append(torch.zeros(shape, dtype=new.dtype, device=new.device))
        return self._write(self._keys[layer_idx], keys), self._write(self._values[layer_idx], values)

    def commit(self, slot: int, length: int) -> None:
        """Entries below ``length`` are valid from now on; the rest is rewound."""
        self.lengths[slot] = length

    def move(self, source: int, target: int) -> None:
        """Copy one slot over another, so that active rows stay in the first slots."""
        length = self.lengths[source]
        for buffer in (*self._keys, *self._values):
            buffer[target, :, :length] = buffer[source, :, :length]
        self.lengths[target] = length

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """What transformers asks of a cache; positions are always given explicitly, so the answer is not used."""
        return self._num_keys

    @property
    def num_bytes(self) -> int:
        """Memory held by keys and values."""
        return sum(buffer.numel() * buffer.element_size() for buffer in (*self._keys, *self._values))

    def _write(self, buffer: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        if self._run is not None:
            slot, start, stop = self._run
            buffer[slot, :, start:stop] = new[0]
        else:
            buffer[self._slot_index.unsqueeze(1), :, self._entries_BN] = new.transpose(1, 2)
        first, num_rows = self._slots[0], len(self._slots)
        if self._slots == list(range(first, first + num_rows)):
            return buffer[first : first + num_rows, :, : self._num_keys]
        return buffer[:, :, : self._num_keys].index_select(0, self._slot_index)

    def _grow(self, needed: int) -> None:
        if needed <= self._capacity:
            return
        capacity = min(self.max_length, _whole_blocks(max(needed, 2 * self._capacity)))
        for buffers in (self._keys, self._values):
            for i, old in enumerate(buffers):
                grown = old.new_zeros(old.shape[0], old.shape[1], capacity + 1, old.shape[3])
                grown[:, :, : self._capacity] = old[:, :, : self._capacity]
                buffers[i] = grown
        self._capacity = capacity


def _whole_blocks(num_entries: int) -> int:
    return -(-num_entries // _KEY_BLOCK) * _KEY_BLOCK
