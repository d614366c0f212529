"""LayerKernel: a decoder layer's work around its attention in two calls instead of some sixty."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from foretell.kernels.build import kernels
from foretell.kernels.linear import CMatrix, Matrix

_MATRICES = ("q", "k", "v", "o", "gate", "up", "down")


class _CLayer(ctypes.Structure):
    _fields_ = [
        *[(name, CMatrix) for name in _MATRICES],
        *[(name, ctypes.c_void_p) for name in ("norm", "mlp_norm")],
        *[(name, ctypes.c_float) for name in ("eps", "mlp_eps")],
        ("head_size", ctypes.c_int64),
    ]


@dataclass
class LayerKernel:
    """A layer of RMSNorms, rotary positions and a gated MLP. ``matrices``: q, k, v, o, gate, up, down.

    ``norms``: gains before attention and before the MLP, each with its epsilon.
    """

    matrices: Sequence[Matrix]
    norms: Sequence[tuple[torch.Tensor, float]]
    head_size: int

    def __post_init__(self) -> None:
        self._gains = [gain.detach().float().contiguous() for gain, _ in self.norms]
        self._layer = _CLayer(
            *(matrix.described for matrix in self.matrices),
            *(gain.data_ptr() for gain in self._gains),
            *(eps for _, eps in self.norms),
            self.head_size,
        )

    def before(
        self, x_PD: torch.Tensor, cos_PR: torch.Tensor, sin_PR: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Float32 states -> queries, keys and values, each (P, heads, d); queries and keys know their positions."""
        made = [torch.empty(len(x_PD), matrix.num_out, device=x_PD.device) for matrix in self.matrices[:3]]
        kernels().layer_before(
            ctypes.byref(self._layer),
            *_pointers(x_PD, cos_PR, sin_PR),
            ctypes.c_int64(cos_PR.shape[-1]),
            *_pointers(*made),
            ctypes.c_int64(len(x_PD)),
            ctypes.c_int(torch.get_num_threads()),
        )
        query, key, value = (part.view(len(x_PD), -1, self.head_size) for part in made)
        return query, key, value

    def after(self, x_PD: torch.Tensor, mixed_PE: torch.Tensor) -> torch.Tensor:
        """States that came in and the output of attention, both float32 -> states that go out."""
        y_PD = torch.empty_like(x_PD)
        kernels().layer_after(
            ctypes.byref(self._layer),
            *_pointers(x_PD, mixed_PE, y_PD),
            ctypes.c_int64(len(x_PD)),
            ctypes.c_int(torch.get_num_threads()),
        )
        return y_PD


def _pointers(*tensors: torch.Tensor) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
