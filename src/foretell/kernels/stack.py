"""StackKernel: all layers of a decoder in one call, their keys and values in blocks of a cache."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from foretell.kernels.build import kernels
from foretell.kernels.linear import CMatrix, Matrix
from foretell.kernels.passes import KernelPass

_MATRICES = ("q", "k", "v", "o", "gate", "up", "down")
_NORMS = ("norm", "mlp_norm", "q_norm", "k_norm")


class CNorm(ctypes.Structure):
    """``Norm`` of layer.h."""

    _fields_ = [("gain", ctypes.c_void_p), ("eps", ctypes.c_float)]


class CLayer(ctypes.Structure):
    """``Layer`` of stack.h."""

    _fields_ = [
        *[(name, CMatrix) for name in _MATRICES],
        *[(name, CNorm) for name in _NORMS],
        ("scale", ctypes.c_float),
        ("head_size", ctypes.c_int64),
        ("kind", ctypes.c_int64),
    ]


class Norm:
    """RMSNorm: a gain and an epsilon."""

    def __init__(self, gain: torch.Tensor, eps: float) -> None:
        self.size = len(gain)
        self._gain = gain.detach().float().contiguous()
        self.described = CNorm(self._gain.data_ptr(), eps)


@dataclass
class Layer:
    """A layer of RMSNorms, rotary positions and a gated MLP. ``matrices``: q, k, v, o, gate, up, down.

    ``norms``: before attention, before the MLP, and of queries and keys where there are such. ``scale``: what scores
    are multiplied by. ``kind``: of its span.
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

    def described(self, kinds: Sequence[str]) -> CLayer:
        """For the kernels, as long as this lives; ``kinds``: those of the spans, in their order."""
        return CLayer(
            *(matrix.described for matrix in self.matrices),
            *(CNorm(None, 0.0) if norm is None else norm.described for norm in self.norms),
            self.scale,
            self.head_size,
            kinds.index(self.kind),
        )


class StackKernel:
    """The layers, and the ``final`` norm behind them, or None where that is left to the caller."""

    def __init__(self, layers: Sequence[Layer], final: Norm | None) -> None:
        self.layers = layers
        self.final = final
        self._kinds = [layer.kind for layer in layers]
        kinds = list(dict.fromkeys(self._kinds))
        self._layers = (CLayer * len(layers))(*(layer.described(kinds) for layer in layers))

    def run(
        self, x_PD: torch.Tensor, given: KernelPass, with_below: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """States (P, D) in float32: of the last layer, behind the final norm, and what entered the last layer."""
        x = x_PD.to(torch.float32, copy=True).contiguous()
        below = torch.empty_like(x) if with_below else None
        post = None if self.final is None else torch.empty_like(x)
        kernels().stack(
            self._layers,
            ctypes.c_int64(len(self._layers)),
            None if self.final is None else ctypes.byref(self.final.described),
            ctypes.byref(given.described(self._kinds)),
            ctypes.c_int(given.is_bfloat),
            *(ctypes.c_void_p(None if each is None else each.data_ptr()) for each in (x, below, post)),
        )
        return x, post, below
