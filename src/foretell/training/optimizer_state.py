"""Optimizer state by parameter name and whole: a run may go on with another number of processes, split or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from foretell.checkpoints.files import one_line
from foretell.errors import CheckpointError
from foretell.models.shards import split_like, whole

_AGAIN = "delete this checkpoint to go on from the one before, or give --overwrite to begin anew"


def state_by_name(optimizer: torch.optim.Optimizer, model: nn.Module, keep: bool = True) -> dict[str, Any]:
    """{"state": {parameter: {name: tensor}}, "groups": settings}, on the CPU.

    Every process must ask at once; those that do not ``keep`` it let go of each tensor when it is gathered.
    """
    names: dict[torch.Tensor, str] = {param: name for name, param in model.named_parameters()}
    state: dict[str, dict[str, Any]] = {}
    for param, entries in optimizer.state.items():
        for key, value in entries.items():
            full = whole(value).detach().cpu() if torch.is_tensor(value) else value
            if keep:
                state.setdefault(names[param], {})[key] = full
    groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    return {"state": state, "groups": groups}


def load_state_by_name(optimizer: torch.optim.Optimizer, model: nn.Module, stored: dict[str, Any]) -> None:
    """Restore what ``state_by_name`` gave; raises CheckpointError where parameters or groups are not the same."""
    names: dict[torch.Tensor, str] = {param: name for name, param in model.named_parameters()}
    params = [param for group in optimizer.param_groups for param in group["params"]]
    unknown = sorted(set(stored["state"]) - {names[param] for param in params})
    if unknown or len(stored["groups"]) != len(optimizer.param_groups):
        other = f"parameters ({', '.join(unknown[:3])})" if unknown else "parameter groups"
        raise CheckpointError(f"the optimizer state is of other {other}; {_AGAIN}")
    # torch's own way in puts every tensor where, and in the type, this optimizer needs it.
    index = {param: i for i, param in enumerate(params)}
    state = {
        i: {key: _split(value, param) for key, value in stored["state"][names[param]].items()}
        for param, i in index.items()
        if names[param] in stored["state"]
    }
    groups = [
        {**settings, "params": [index[param] for param in group["params"]]}
        for group, settings in zip(optimizer.param_groups, stored["groups"], strict=True)
    ]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def read_state(path: Path) -> dict[str, Any]:
    """A file that torch.save wrote, tensors and plain values alone; raises CheckpointError where it is damaged."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and torch raise what they like for a damaged file
        raise CheckpointError(f"{path}: cannot be read ({one_line(error)[:120]}); {_AGAIN}") from error


def _split(value: Any, param: torch.Tensor) -> Any:
    """Moments are split as their parameter is; a scalar (the step count) stays as it is."""
    return split_like(value, param) if torch.is_tensor(value) and value.shape == param.shape else value
