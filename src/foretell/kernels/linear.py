"""Matrices that the kernels multiply by: float32 and bfloat16 as they are, int8 and int4 quantised here.

int8: one scale a row, symmetric. int4: a scale and a least value for every 32 values of a row, rounded to float16 as in
GGUF's Q4_1, so that a trunk that comes from such a file is met again exactly.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
import torch.nn.functional as F

from foretell.kernels.build import kernels, library

Precision = Literal["int8", "int4"]
Kind = Literal["float32", "bfloat16", "int8", "int4"]
MAX_ROWS = 64
"""Most rows of x for dense weights; more are arithmetic, which libraries do faster."""
GROUP = 32
_DENSE: dict[torch.dtype, Kind] = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_KINDS = ("float32", "bfloat16", "int8", "int4")


def runs(dtype: torch.dtype, device: torch.device) -> bool:
    """True where a matrix of ``dtype`` on ``device`` can be multiplied by."""
    return device.type == "cpu" and dtype in _DENSE and library() is not None


class CMatrix(ctypes.Structure):
    """``Matrix`` of linear.h."""

    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("kind", "outs", "cols")],
        *[(name, ctypes.c_void_p) for name in ("values", "scales", "leasts", "bias")],
    ]


@dataclass
class Matrix:
    """(O, I) values for ``multiply``. ``values``: as stored; int8: times ``scales``; int4: and plus ``leasts``."""

    kind: Kind
    num_out: int
    num_in: int
    values: torch.Tensor
    scales: torch.Tensor | None = None
    leasts: torch.Tensor | None = None
    bias: torch.Tensor | None = None

    @classmethod
    def dense(cls, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Matrix:
        """The numbers of ``weight`` themselves; no copy where they lie row by row."""
        num_out, num_in = weight.shape
        return cls(_DENSE[weight.dtype], num_out, num_in, weight.detach().contiguous(), bias=_float(bias))

    @classmethod
    def quantised(cls, weight: torch.Tensor, precision: Precision, bias: torch.Tensor | None = None) -> Matrix:
        """``weight`` rounded. Rows that int4 cannot divide into groups are left in int8."""
        num_out, num_in = weight.shape
        values = weight.detach().float()
        if precision == "int4" and num_in % GROUP == 0:
            return cls("int4", num_out, num_in, *_int4(values.view(num_out, -1, GROUP)), _float(bias))
        scales = values.abs().amax(1) / 127
        rounded = (values / scales.clamp(min=1e-30).unsqueeze(1)).round().to(torch.int8)
        return cls("int8", num_out, num_in, F.pad(rounded, (0, -num_in % GROUP)), scales, bias=_float(bias))

    @property
    def num_bytes(self) -> int:
        """Memory of the stored numbers."""
        return sum(t.numel() * t.element_size() for t in (self.values, self.scales, self.leasts) if t is not None)

    @cached_property
    def described(self) -> CMatrix:
        """For the kernels, as long as this lives and its tensors stay where they are."""
        tensors = (self.values, self.scales, self.leasts, self.bias)
        return CMatrix(_KINDS.index(self.kind), self.num_out, self.num_in, *map(_pointer, tensors))

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files have the numbers, not where they lay."""
        return {name: value for name, value in self.__dict__.items() if name != "described"}

    @property
    def is_rounded(self) -> bool:
        """True for int8 and int4."""
        return self.scales is not None

    def takes(self, num_rows: int) -> bool:
        """True where ``multiply`` is the way for so many rows; many times dense weights are libraries' work."""
        return self.is_rounded or num_rows <= MAX_ROWS

    def multiply(self, x_MI: torch.Tensor) -> torch.Tensor:
        """(M, I) -> (M, O) in the type of ``x_MI``, the bias added; each row has the same bits in every M.

        Sums are in float32. For int8 and int4 rows of ``x_MI`` are rounded to 8 bits, with a scale every GROUP numbers.
        """
        x = x_MI.float().contiguous()
        y = torch.empty(len(x), self.num_out, device=x.device)
        kernels().linear(
            ctypes.byref(self.described),
            ctypes.c_void_p(x.data_ptr()),
            ctypes.c_void_p(y.data_ptr()),
            ctypes.c_int64(len(x)),
            ctypes.c_int(torch.get_num_threads()),
        )
        return y.to(x_MI.dtype)

    def to_dense(self, dtype: torch.dtype) -> torch.Tensor:
        """(O, I): the values that are multiplied by, in ``dtype``."""
        if self.scales is None:
            return self.values.to(dtype)
        if self.kind == "int8":
            return (self.values[:, : self.num_in] * self.scales.unsqueeze(1)).to(dtype)
        assert self.leasts is not None
        q = torch.cat([self.values & 15, self.values >> 4], dim=-1).float()
        return torch.addcmul(self.leasts.unsqueeze(-1), q, self.scales.unsqueeze(-1)).flatten(1).to(dtype)


def _int4(groups_OGK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Bytes (O, groups, 16), scales and least values (O, groups)."""
    least, most = groups_OGK.aminmax(dim=-1)
    scale = ((most - least) / 15).half().float()
    least = least.half().float()
    q = ((groups_OGK - least.unsqueeze(-1)) / scale.clamp(min=1e-8).unsqueeze(-1)).round().clamp(0, 15)
    q = q.to(torch.uint8)
    half = GROUP // 2
    return (q[..., :half] | (q[..., half:] << 4)).contiguous(), scale, least


def _float(bias: torch.Tensor | None) -> torch.Tensor | None:
    return None if bias is None else bias.detach().float().contiguous()


def _pointer(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
