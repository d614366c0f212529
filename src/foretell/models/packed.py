"""Linear layers with weights packed once for oneDNN: one pass over several tokens then costs little more than over one.

Plain MKL makes two tokens nearly twice as dear as one, and then no draft can pay (docs/benchmarks.md has the curve).
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from foretell.models.quantised import is_quantised

_TYPICAL_ROWS = 4
"""Row count the packed layout is chosen for: the nodes of a decode step."""


class PackedLinear(nn.Module):
    """Inference-only stand-in for nn.Linear. ``weight`` stays reachable (tied embedding, draft vocabulary, saving)."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight
        self.bias = linear.bias
        self._packed = (torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _TYPICAL_ROWS),)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same product as the linear layer it stands for, up to rounding."""
        return torch.ops.mkldnn._linear_pointwise(x, self._packed[0], self.bias, "none", [], "")

    def unpacked(self) -> nn.Linear:
        """An ordinary linear layer with the same weight tensors."""
        linear = nn.Linear(1, 1, bias=False, device="meta")
        linear.out_features, linear.in_features = self.weight.shape
        linear.weight, linear.bias = self.weight, self.bias
        return linear

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Linear:
        """A copy has weights of its own, free to change, so it is not packed (heads copy a trunk's layer)."""
        return copy.deepcopy(self.unpacked(), memo)


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """True where oneDNN packs this type on this CPU (bf16 needs AVX-512 or better)."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


def smallest_pass(linear: nn.Module) -> int:
    """Least number of rows with which each row of ``linear``'s product rounds alike; 1 where no number is sure to.

    A packed 16-bit product of one row runs another kernel than one of several on some CPUs.
    """
    return 2 if isinstance(linear, PackedLinear) and linear.weight.dtype.itemsize == 2 else 1


def pack_linears(module: nn.Module) -> int:
    """Replace every nn.Linear below ``module`` in place; returns how many. Undo with ``unpack_linears``."""
    count = 0
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and _is_packable(child.weight):
                setattr(parent, name, PackedLinear(child))
                count += 1
    return count


def _is_packable(weight: torch.Tensor) -> bool:
    return not is_quantised(weight) and can_pack(weight.dtype, weight.device)


def unpack_linears(module: nn.Module) -> None:
    """Put ordinary linear layers back in place, with the same weights; training needs them."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, PackedLinear):
                setattr(parent, name, child.unpacked())
