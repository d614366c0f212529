"""StackKernel: all layers of a decoder in one call, their keys and values in blocks of a cache."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from foretell.kernels.build import kernels
from foretell.kernels.linear import CMatrix, Matrix

MATRICES = ("q", "k", "v", "o", "gate", "up", "down")
NORMS = ("norm", "mlp_norm", "q_norm", "k_norm")

Norm = tuple[torch.Tensor, float]
"""RMSNorm: gain and epsilon."""


class _CNorm(ctypes.Structure):
    _fields_ = [("gain", ctypes.c_void_p), ("eps", ctypes.c_float)]


class _CLayer(ctypes.Structure):
    _fields_ = [
        *[(name, CMatrix) for name in MATRICES],
        *[(name, _CNorm) for name in NORMS],
        ("scale", ctypes.c_float),
        ("head_size", ctypes.c_int64),
        ("kind", ctypes.c_int64),
    ]


class _CSpan(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ("writes", "blocks", "mask")],
        *[(name, ctypes.c_int64) for name in ("keys", "entries")],
    ]


class _CPass(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("tokens", "rows", "nodes")],
        *[(name, ctypes.c_void_p) for name in ("counts", "cos", "sin")],
        ("turned", ctypes.c_int64),
        *[(name, ctypes.c_void_p) for name in ("spans", "keys", "values")],
        ("threads", ctypes.c_int),
    ]


@dataclass
class Layer:
    """A layer of RMSNorms, rotary positions and a gated MLP. ``matrices`` and ``norms`` in the order of their names.

    Norms of queries and keys may be None. ``scale``: what scores are multiplied by. ``kind``: of its span.
    """

    matrices: Sequence[Matrix]
    norms: Sequence[Norm | None]
    scale: float
    head_size: int
    kind: str

    @property
    def num_kv_heads(self) -> int:
        """Heads of its keys and values."""
        return self.matrices[1].num_out // self.head_size


@dataclass
class Span:
    """What the layers of one kind write and read. ``writes_P``: entry of each token's key.

    ``blocks_BK``: blocks that hold a row's keys; ``mask_BNS``: which of those each node sees.
    """

    writes_P: torch.Tensor
    blocks_BK: torch.Tensor
    mask_BNS: torch.Tensor


class StackKernel:
    """The layers, and the ``final`` norm behind them, or None where that is left to the caller."""

    def __init__(self, layers: Sequence[Layer], final: Norm | None) -> None:
        self.layers = layers
        self.kinds = list(dict.fromkeys(layer.kind for layer in layers))
        self.has_final = final is not None
        self._gains: list[torch.Tensor] = []
        self._final = self._norm(final)
        self._layers = (_CLayer * len(layers))(
            *(
                _CLayer(
                    *(matrix.described for matrix in layer.matrices),
                    *(self._norm(norm) for norm in layer.norms),
                    layer.scale,
                    layer.head_size,
                    self.kinds.index(layer.kind),
                )
                for layer in layers
            )
        )

    def run(
        self,
        x_PD: torch.Tensor,
        rotary_PR: tuple[torch.Tensor, torch.Tensor],
        counts: Sequence[int],
        spans: dict[str, Span],
        keys: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        with_below: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """States (P, D) in float32: of the last layer, behind the final norm, and what entered the last layer.

        ``rotary_PR``: cosines and sines; ``counts``: tokens of each row, which are packed; ``keys``, ``values``: the
        cache's buffers of every layer, (kv_heads, blocks, block size, d), in float32 or bfloat16.
        """
        x = x_PD.to(torch.float32, copy=True).contiguous()
        cos, sin = (part.float().contiguous() for part in rotary_PR)
        used = [spans[kind] for kind in self.kinds]
        kept = [(s.writes_P.contiguous(), s.blocks_BK.contiguous(), s.mask_BNS.contiguous()) for s in used]
        entries = {layer.kind: each.shape[1] * each.shape[2] for layer, each in zip(self.layers, keys, strict=True)}
        c_spans = (_CSpan * len(used))(
            *(
                _CSpan(*(part.data_ptr() for part in parts), parts[2].shape[-1], entries[kind])
                for kind, parts in zip(self.kinds, kept, strict=True)
            )
        )
        c_counts = (ctypes.c_int64 * len(counts))(*counts)
        pointers = [(ctypes.c_void_p * len(each))(*(buffer.data_ptr() for buffer in each)) for each in (keys, values)]
        c_pass = _CPass(
            *(len(x), len(counts), max(counts), ctypes.addressof(c_counts), cos.data_ptr(), sin.data_ptr()),
            *(cos.shape[-1], ctypes.addressof(c_spans)),
            *(ctypes.addressof(each) for each in pointers),
            torch.get_num_threads(),
        )
        below = torch.empty_like(x) if with_below else None
        post = torch.empty_like(x) if self.has_final else None
        kernels().stack(
            *(self._layers, ctypes.c_int64(len(self._layers)), ctypes.byref(self._final), ctypes.byref(c_pass)),
            ctypes.c_int(keys[0].dtype == torch.bfloat16),
            *(ctypes.c_void_p(None if each is None else each.data_ptr()) for each in (x, below, post)),
        )
        return x, post, below

    def _norm(self, norm: Norm | None) -> _CNorm:
        if norm is None:
            return _CNorm(None, 0.0)
        self._gains.append(norm[0].detach().float().contiguous())
        return _CNorm(self._gains[-1].data_ptr(), norm[1])
