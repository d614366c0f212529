"""Quantised linear layers of a trunk: known, left as they are, and made dense where the heads need values of their own.

torchao keeps nn.Linear and puts a tensor of its own kind in its place; bitsandbytes replaces the layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


def is_quantised(weight: torch.Tensor) -> bool:
    """True where ``weight`` stands for values that it does not hold as they are."""
    split = hasattr(weight, "full_tensor")  # a part among processes, of ordinary values
    return not weight.is_floating_point() or (is_traceable_wrapper_subclass(weight) and not split)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a tensor that knows how to give them (torchao's); others as they are."""
    return tensor.dequantize() if is_quantised(tensor) and is_traceable_wrapper_subclass(tensor) else tensor


def stored_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and persistent buffers by name, as in ``state_dict``; asking bitsandbytes for that one alters results.

    (Its 4-bit layers on the CPU repack their weights for it, and compute something else afterwards: 0.50.)
    """
    found: dict[str, torch.Tensor] = dict(model.named_parameters(remove_duplicate=False))
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set:
                found[f"{prefix}.{name}" if prefix else name] = buffer
    return found


def dense_weight(linear: Any, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """(out, in) values of a linear layer's weight; of a quantised one the values it computes with, in ``dtype``."""
    weight = linear.weight.detach()
    if weight.is_floating_point() or is_traceable_wrapper_subclass(weight):
        return dense(weight)
    with torch.no_grad():  # its library may have laid the numbers out anew: what it computes is what they mean
        columns = linear(torch.eye(linear.in_features, dtype=dtype, device=weight.device))
    return (columns if linear.bias is None else columns - linear.bias).t()


def make_dense(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Put ordinary linear layers in place of quantised ones below ``module``, with values in ``dtype``; returns it."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            weight = getattr(child, "weight", None)
            if isinstance(child, nn.Linear) and isinstance(weight, torch.Tensor) and is_quantised(weight):
                linear = nn.Linear(1, 1, bias=False, device="meta")
                linear.out_features, linear.in_features = child.out_features, child.in_features
                linear.weight = nn.Parameter(dense_weight(child, dtype).to(dtype).clone())
                linear.bias = None if child.bias is None else nn.Parameter(child.bias.detach().to(dtype).clone())
                setattr(parent, name, linear)
    return module
