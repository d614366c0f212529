"""FSDP2: weights, gradients and optimizer state split among processes, gathered layer by layer while they compute."""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from foretell.models.support import decoder_layers
from foretell.training.training_model import TrainingModel


def shard(model: TrainingModel) -> None:
    """Split ``model`` over all processes, in place: each layer of the trunk for itself, heads and the rest together.

    Heads stay in one group with the embedding and the output head, because they use both; one block serves several
    depths there, and gathering it once a step is enough.
    """
    device = next(model.parameters()).device.type
    mesh = init_device_mesh(device, (torch.distributed.get_world_size(),))
    for layer in decoder_layers(model.trunk, '[train] sharding = "fsdp"'):
        if any(param.requires_grad for param in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)


def use_outside(model: TrainingModel) -> None:
    """Let parts of a split model be called by themselves, as ``evaluate`` does; layers go on gathering themselves."""
    if isinstance(model, FSDPModule):
        model.unshard()
