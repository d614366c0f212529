"""Memory: what drafters add to a trunk, and how many blocks of cache a budget buys."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from foretell.decoding.blocks import BLOCK_SIZE, FULL
from foretell.decoding.recurrent import RecurrentStates
from foretell.models.heads import Heads
from foretell.models.packed import PackedLinear
from foretell.models.trunk import Trunk

_SHARE_OF_FREE = 0.5
"""Of the memory that is free when an engine starts, its caches take so much at the most, if no budget is given."""


def weights_num_bytes(module: nn.Module) -> int:
    """A module's tensors and their packed copies."""
    own = sum(t.numel() * t.element_size() for t in (*module.parameters(), *module.buffers()))
    return own + sum(m.num_bytes for m in module.modules() if isinstance(m, PackedLinear))


def heads_num_bytes(heads: Heads) -> int:
    """The heads' own tensors, their packed copies, and the rows of a reduced draft vocabulary."""
    own = weights_num_bytes(heads)
    if heads.draft_ids_V is None or heads.output_parameters(1):
        return own
    rows = heads.draft_rows()
    return own + weights_num_bytes(rows)


def free_num_bytes(device: torch.device) -> int:
    """A fair share of what is free on ``device`` now."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(free * _SHARE_OF_FREE)


def block_num_bytes(trunk: Trunk) -> dict[str, int]:
    """Keys and values of one block in all layers, by their kind."""
    sizes: dict[str, int] = {}
    for kind, size in layer_num_bytes(trunk):
        sizes[kind] = sizes.get(kind, 0) + size
    return sizes


def heads_block_num_bytes(heads: Heads | None) -> int:
    """Keys and values of one block in all layers of all modules, which are as large as the trunk's of their kind."""
    if heads is None or not heads.attends:
        return 0
    sizes = dict(layer_num_bytes(heads.trunk))
    per_module = sum(sizes.get(kind, max(sizes.values(), default=0)) for kind in heads.layer_kinds)
    return heads.config.num_modules * per_module


@torch.inference_mode()
def layer_num_bytes(trunk: Trunk) -> list[tuple[str, int]]:
    """Kind, and keys and values of one block, of every layer that has some; found by running one token, since families
    differ.
    """
    if set(trunk.kinds) == {"linear_attention"}:
        return []
    recorder = _Recorder(trunk)
    index = torch.zeros(1, 1, dtype=torch.long, device=trunk.device)
    seen = torch.ones(1, 1, 1, dtype=torch.bool, device=trunk.device)
    trunk.states(trunk.embed(index), index, seen, index, recorder)
    return recorder.sizes


class _Recorder:
    """Cache-shaped: notes how large a block of each layer is."""

    def __init__(self, trunk: Trunk) -> None:
        self.kinds = trunk.kinds
        self.sizes: list[tuple[str, int]] = []
        self.layout = None
        if trunk.is_recurrent:
            self.recurrent = RecurrentStates(trunk.model)
            self.recurrent.begin([0], [1], [1])

    def __getattr__(self, name: str) -> Any:
        if (recurrent := self.__dict__.get("recurrent")) is None:
            raise AttributeError(name)
        return getattr(recurrent, name)

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        size = sum(t.numel() * t.element_size() for t in (keys, values))
        kind = self.kinds[layer_idx] if self.kinds[layer_idx] == "sliding_attention" else FULL
        self.sizes.append((kind, size * BLOCK_SIZE))
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0
