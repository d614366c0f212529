"""Linear layers laid out for decoding: one pass over several tokens then costs little more than over one.

On the CPU these are the project's own kernels (kernels/linear), or oneDNN's where its 16-bit units make it faster or no
compiler is there. Plain MKL makes two tokens nearly twice as dear as one, and then no draft can pay.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from foretell.kernels.linear import Matrix, Precision, runs
from foretell.models.quantised import is_quantised

_TYPICAL_ROWS = 4
"""Row count that oneDNN's layout is chosen for: the nodes of a decode step."""


class PackedLinear(nn.Module):
    """Inference-only stand-in for nn.Linear. ``weight`` stays reachable (tied embedding, draft vocabulary, saving)."""

    num_bytes = 0
    """Memory that the layout takes beside ``weight``."""
    smallest_pass = 1
    """Least number of rows with which each row of the product rounds alike."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight
        self.bias = linear.bias

    def unpacked(self) -> nn.Linear:
        """An ordinary linear layer with the same weight tensors."""
        linear = nn.Linear(1, 1, bias=False, device="meta")
        linear.out_features, linear.in_features = self.weight.shape
        linear.weight, linear.bias = self.weight, self.bias
        return linear

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Linear:
        """A copy has weights of its own, free to change, so it is not packed (heads copy a trunk's layer)."""
        return copy.deepcopy(self.unpacked(), memo)


class KernelLinear(PackedLinear):
    """By kernels/linear, where it takes so many rows; each row has the same bits however many there are.

    ``precision``: multiply by the weights rounded so, None for the weights as they are, which takes no more memory.
    """

    def __init__(self, linear: nn.Linear, precision: Precision | None = None) -> None:
        super().__init__(linear)
        weight, bias = linear.weight, linear.bias
        self.matrix = Matrix.dense(weight, bias) if precision is None else Matrix.quantised(weight, precision, bias)
        self.num_bytes = 0 if precision is None else self.matrix.num_bytes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same product as the linear layer it stands for, up to rounding."""
        x_MI = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
        if self.matrix.takes(len(x_MI)):
            return self.matrix.multiply(x_MI).view(*x.shape[:-1], self.matrix.num_out)
        return F.linear(x, self.matrix.to_dense(x.dtype), self.bias)


class OneDNNLinear(PackedLinear):
    """By oneDNN, which keeps a copy of the weights in a layout of its own."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self._packed = (torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _TYPICAL_ROWS),)
        self.num_bytes = linear.weight.numel() * linear.weight.element_size()
        self.smallest_pass = 2 if linear.weight.dtype.itemsize == 2 else 1  # one row may run another kernel

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same product as the linear layer it stands for, up to rounding."""
        return torch.ops.mkldnn._linear_pointwise(x, self._packed[0], self.bias, "none", [], "")


def has_bf16_units() -> bool:
    """True where this CPU multiplies bfloat16 in hardware (AVX-512 or better), which oneDNN then uses."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """True where a layer of this type is laid out for decoding."""
    return _kind(dtype, device) is not None


def packed(linear: nn.Linear, precision: Precision | None = None) -> PackedLinear | None:
    """A stand-in for ``linear`` on this machine, or None where it is best left alone."""
    weight = linear.weight
    if is_quantised(weight) or (kind := _kind(weight.dtype, weight.device)) is None:
        return None
    if precision is not None:
        return KernelLinear(linear, precision)
    return kind(linear)


def _kind(dtype: torch.dtype, device: torch.device) -> type[PackedLinear] | None:
    if device.type != "cpu":
        return None
    if dtype == torch.bfloat16 and has_bf16_units():
        return OneDNNLinear
    if runs(dtype, device):
        return KernelLinear
    return OneDNNLinear if dtype == torch.float32 and torch.backends.mkldnn.is_available() else None


def smallest_pass(linear: nn.Module) -> int:
    """Least number of rows with which each row of ``linear``'s product rounds alike; 1 where no number is sure to."""
    return linear.smallest_pass if isinstance(linear, PackedLinear) else 1


def pack_linears(module: nn.Module, precision: Precision | None = None) -> int:
    """Replace every nn.Linear below ``module`` in place; returns how many. Undo with ``unpack_linears``."""
    count = 0
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and (stand_in := packed(child, precision)) is not None:
                setattr(parent, name, stand_in)
                count += 1
    return count


def unpack_linears(module: nn.Module) -> None:
    """Put ordinary linear layers back in place, with the same weights; training needs them."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, PackedLinear):
                setattr(parent, name, child.unpacked())
