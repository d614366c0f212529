"""Medusa's own files (medusa_lm_head.pt): ``{k}.{j}.linear`` residual blocks, ``{k}.{n}`` head k's output matrix."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from foretell.config import HeadsConfig
from foretell.errors import CheckpointError
from foretell.models.build import build_heads
from foretell.models.heads import Heads
from foretell.models.trunk import Trunk

_NAME = re.compile(r"(?:medusa_head\.)?(\d{1,9})\.(\d{1,9})\.((?:linear\.)?(?:weight|bias))")


def medusa_heads(trunk: Trunk, tensors: Mapping[str, torch.Tensor]) -> tuple[Heads, dict[str, str]]:
    """Heads with the values of ``tensors``, and our name of each. Raises CheckpointError naming what does not fit."""
    places = {name: _NAME.fullmatch(name) for name in tensors}
    strange = sorted(name for name, found in places.items() if found is None)
    numbers = [(int(found[1]), int(found[2])) for found in places.values() if found]
    if strange or not numbers:
        raise CheckpointError(f"Medusa heads with tensors of other names: {', '.join(strange) or 'none at all'}")
    num_heads, num_blocks = max(k for k, _ in numbers) + 1, max(j for _, j in numbers)
    if max(num_heads, num_blocks) > len(tensors):  # nothing of that size is built to be told from
        raise CheckpointError(
            f"Medusa heads whose names count {num_heads} heads of {num_blocks} blocks, in {len(tensors)} tensors"
        )
    config = HeadsConfig(kind="medusa", num_depths=num_heads, num_res_blocks=max(num_blocks, 1))
    heads = build_heads(trunk, config)
    own = heads.state_dict()
    renamed = {}
    for name, found in places.items():
        assert found is not None
        part = "output" if int(found[2]) == num_blocks else f"blocks.{found[2]}"
        renamed[name] = f"modules_by_depth.{found[1]}.{part}.{found[3]}"
    wrong = sorted(own.keys() ^ set(renamed.values()))
    wrong += [
        f"{name} {list(tensors[name].shape)} instead of {list(own[ours].shape)}"
        for name, ours in renamed.items()
        if ours in own and own[ours].shape != tensors[name].shape
    ]
    if wrong:
        raise CheckpointError(f"Medusa heads that do not fit {trunk.name}: missing or misshapen {', '.join(wrong)}")
    with torch.no_grad():
        for name, ours in renamed.items():
            own[ours].copy_(tensors[name])
    return heads, renamed
