"""Matrices that the kernels multiply by: float32 and bfloat16 as they are, int8 and int4 quantised here.

int8: one scale a row, symmetric. int4: a scale and a least value for every 32 values of a row, rounded to float16 as in
GGUF's Q4_1, so that a trunk that comes from such a file is met again exactly.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Literal

import torch

from foretell.kernels.build import library

Precision = Literal["int8", "int4"]
MAX_ROWS = 32
"""Most rows of x that the kernels take; more are arithmetic, which libraries do faster."""
GROUP = 32
_DENSE = {torch.float32: "linear_float32", torch.bfloat16: "linear_bfloat16"}


def runs(dtype: torch.dtype, device: torch.device) -> bool:
    """True where a matrix of ``dtype`` on ``device`` can be multiplied by."""
    return device.type == "cpu" and dtype in _DENSE and library() is not None


@dataclass
class Matrix:
    """(O, I) values for ``multiply``. ``values``: as stored; ``scales``: what they are multiplied by, or None."""

    kernel: str
    num_out: int
    num_in: int
    values: torch.Tensor
    scales: torch.Tensor | None = None

    @classmethod
    def dense(cls, weight: torch.Tensor) -> Matrix:
        """The numbers of ``weight`` themselves; no copy where they lie row by row."""
        num_out, num_in = weight.shape
        return cls(_DENSE[weight.dtype], num_out, num_in, weight.detach().contiguous())

    @classmethod
    def quantised(cls, weight: torch.Tensor, precision: Precision) -> Matrix:
        """``weight`` rounded. Rows that int4 cannot divide into groups are left in int8."""
        num_out, num_in = weight.shape
        values = weight.detach().float()
        if precision == "int4" and num_in % GROUP == 0:
            return cls("linear_int4", num_out, num_in, *_int4(values.view(num_out, -1, GROUP)))
        scales = values.abs().amax(1) / 127
        rounded = (values / scales.clamp(min=1e-30).unsqueeze(1)).round().to(torch.int8)
        return cls("linear_int8", num_out, num_in, rounded, scales)

    @property
    def num_bytes(self) -> int:
        """Memory of the stored numbers."""
        return sum(t.numel() * t.element_size() for t in (self.values, self.scales) if t is not None)

    def multiply(self, x_MI: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """(M, I) -> (M, O) in the type of ``x_MI``, for up to MAX_ROWS rows; sums are in float32."""
        x = x_MI.float().contiguous()
        y = torch.empty(len(x), self.num_out)
        bias = None if bias is None else bias.float().contiguous()
        pointers = [t.data_ptr() for t in (self.values, self.scales, x, y) if t is not None]
        kernel = getattr(library(), self.kernel)
        kernel(
            *map(ctypes.c_void_p, pointers),
            ctypes.c_void_p(None if bias is None else bias.data_ptr()),
            *map(ctypes.c_int64, (len(x), self.num_in, self.num_out)),
            ctypes.c_int(torch.get_num_threads()),
        )
        return y.to(x_MI.dtype)

    def to_dense(self, dtype: torch.dtype) -> torch.Tensor:
        """(O, I): the values that are multiplied by, in ``dtype``."""
        if self.scales is None:
            return self.values.to(dtype)
        if self.kernel == "linear_int8":
            return (self.values * self.scales.unsqueeze(1)).to(dtype)
        q = torch.cat([self.values & 15, self.values >> 4], dim=-1)
        return torch.addcmul(self.scales[..., 1:], q.float(), self.scales[..., :1]).view(self.num_out, -1).to(dtype)


def _int4(groups_OGK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes (O, groups, 16) and scales (O, groups, 2)."""
    least, most = groups_OGK.aminmax(dim=-1)
    scale = ((most - least) / 15).half().float()
    least = least.half().float()
    q = ((groups_OGK - least.unsqueeze(-1)) / scale.clamp(min=1e-8).unsqueeze(-1)).round().clamp(0, 15)
    q = q.to(torch.uint8)
    half = GROUP // 2
    return (q[..., :half] | (q[..., half:] << 4)).contiguous(), torch.stack([scale, least], dim=-1)
