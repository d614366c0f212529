"""Tensors that are split among processes (FSDP2's DTensors), whole and split again."""

from __future__ import annotations

from typing import Any

import torch


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The whole of a split tensor (every process must ask at once), or the tensor itself."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def split_like(tensor: torch.Tensor, param: Any) -> torch.Tensor:
    """``tensor`` split as ``param`` is; itself where ``param`` is not split. Every process holds the whole tensor."""
    if not hasattr(param, "full_tensor"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(param.device), param.device_mesh, param.placements, src_data_rank=None)
