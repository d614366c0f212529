"""Optimizer state by parameter name and whole: a run may go on with another number of processes, split or not."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from foretell.errors import CheckpointError
from foretell.models.shards import split_like, whole


def state_by_name(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Any]:
    """{"state": {parameter: {name: tensor}}, "groups": settings}. Every process must ask at once."""
    names: dict[torch.Tensor, str] = {param: name for name, param in model.named_parameters()}
    state = {
        names[param]: {
            key: whole(value).detach().cpu() if torch.is_tensor(value) else value for key, value in entries.items()
        }
        for param, entries in optimizer.state.items()
    }
    groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    return {"state": state, "groups": groups}


def load_state_by_name(optimizer: torch.optim.Optimizer, model: nn.Module, stored: dict[str, Any]) -> None:
    """Restore what ``state_by_name`` gave; raises CheckpointError where parameters or groups are not the same."""
    params = {name: param for name, param in model.named_parameters() if param.requires_grad}
    if unknown := sorted(set(stored["state"]) - set(params)):
        raise CheckpointError(
            f"the optimizer state is of other parameters ({', '.join(unknown[:3])}); give --overwrite to begin anew"
        )
    if len(stored["groups"]) != len(optimizer.param_groups):
        raise CheckpointError("the optimizer state has other parameter groups; give --overwrite to begin anew")
    for name, entries in stored["state"].items():
        param = params[name]
        optimizer.state[param] = {
            key: _placed(value, param) if torch.is_tensor(value) else value for key, value in entries.items()
        }
    for group, settings in zip(optimizer.param_groups, stored["groups"], strict=True):
        group.update(settings)


def _placed(value: torch.Tensor, param: torch.Tensor) -> torch.Tensor:
    """Moments lie where their parameter lies; a scalar (the step count) stays as it is."""
    if value.shape != param.shape:
        return value
    return split_like(value.to(param.device), param)
