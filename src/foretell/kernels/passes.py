"""KernelPass: what the kernels of a whole pass are told: its tokens, their positions, and the blocks of the cache."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch


class _CSpan(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ("writes", "blocks", "mask")],
        *[(name, ctypes.c_int64) for name in ("keys", "entries")],
    ]


class CPass(ctypes.Structure):
    """``Pass`` of stack.h."""

    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("tokens", "rows", "nodes")],
        *[(name, ctypes.c_void_p) for name in ("counts", "cos", "sin")],
        ("turned", ctypes.c_int64),
        *[(name, ctypes.c_void_p) for name in ("spans", "keys", "values")],
        ("threads", ctypes.c_int),
    ]


@dataclass
class Span:
    """What the layers of one kind write and read. ``writes_P``: entry of each token's key.

    ``blocks_BK``: blocks that hold a row's keys; ``mask_BNS``: which of those each node sees.
    """

    writes_P: torch.Tensor
    blocks_BK: torch.Tensor
    mask_BNS: torch.Tensor


@dataclass
class KernelPass:
    """``counts``: tokens of each row, packed into P. ``rotary_PR``: cosines and sines. ``spans``: by kind of layer.

    ``keys``, ``values``: the cache's buffers of every layer, (kv_heads, blocks, block size, d), in float32 or bfloat16.
    """

    counts: Sequence[int]
    rotary_PR: tuple[torch.Tensor, torch.Tensor]
    spans: dict[str, Span]
    keys: Sequence[torch.Tensor]
    values: Sequence[torch.Tensor]

    @property
    def is_bfloat(self) -> bool:
        """True where keys are kept in bfloat16."""
        return self.keys[0].dtype == torch.bfloat16

    def described(self, kinds: Sequence[str]) -> CPass:
        """For the kernels, as long as this lives; ``kinds``: of the layers, one an entry of ``keys``."""
        cos, sin = (part.float().contiguous() for part in self.rotary_PR)
        entries = {kind: each.shape[1] * each.shape[2] for kind, each in zip(kinds, self.keys, strict=True)}
        spans = [self.spans[kind] for kind in entries]
        parts = [[part.contiguous() for part in (s.writes_P, s.blocks_BK, s.mask_BNS)] for s in spans]
        c_spans = (_CSpan * len(spans))(
            *(
                _CSpan(*(each.data_ptr() for each in part), part[2].shape[-1], num_entries)
                for part, num_entries in zip(parts, entries.values(), strict=True)
            )
        )
        counts = (ctypes.c_int64 * len(self.counts))(*self.counts)
        keys, values = (
            (ctypes.c_void_p * len(each))(*(buffer.data_ptr() for buffer in each)) for each in (self.keys, self.values)
        )
        self._kept = (cos, sin, parts, c_spans, counts, keys, values)
        return CPass(
            *(sum(self.counts), len(self.counts), max(self.counts), ctypes.addressof(counts)),
            *(cos.data_ptr(), sin.data_ptr(), cos.shape[-1]),
            *(ctypes.addressof(each) for each in (c_spans, keys, values)),
            torch.get_num_threads(),
        )
