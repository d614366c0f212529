"""A copy of a part of the trunk that is the heads' own: whole, on its own, and deaf to what was hung on the trunk."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

from torch import nn

from foretell.models.shards import whole

_REPLACED = ("forward", "_old_forward", "_hf_hook")
"""What loaders set on a module itself, in front of its class's own ``forward``."""


def copy_without_hooks(module: nn.Module) -> nn.Module:
    """A copy of ``module`` that has none of its hooks, and is whole where it is split among processes.

    The trunk's runner listens to its norm and its last layer: a copy of such a hook would be a copy of the whole trunk.
    Loaders replace ``forward`` to move tensors between devices (accelerate) or to sum over processes (tensor
    parallelism): a copy of that would still run the trunk's. Every process must copy at once.
    """
    memo: dict[int, Any] = {}
    for part in module.modules():
        memo |= {id(hooks): OrderedDict() for hooks in (part._forward_pre_hooks, part._forward_pre_hooks_with_kwargs)}
        memo |= {id(part.__dict__[name]): None for name in _REPLACED if name in part.__dict__}
        for parameter in part.parameters(recurse=False):
            if hasattr(parameter, "full_tensor"):
                memo[id(parameter)] = nn.Parameter(whole(parameter.detach()).clone(), parameter.requires_grad)
    copied = copy.deepcopy(module, memo)
    for part in copied.modules():
        for name in _REPLACED:
            part.__dict__.pop(name, None)
    return copied
