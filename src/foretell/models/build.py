"""From a config to the heads it describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from foretell.config import HeadsConfig
from foretell.models.heads import Heads
from foretell.models.medusa import MedusaHeads
from foretell.models.parallel import ParallelHeads
from foretell.models.sequential import SequentialHeads

if TYPE_CHECKING:
    from foretell.models.trunk import Trunk

_KINDS: dict[str, type[Heads]] = {"sequential": SequentialHeads, "parallel": ParallelHeads, "medusa": MedusaHeads}


def build_heads(trunk: Trunk, config: HeadsConfig, draft_ids_V: torch.Tensor | None = None) -> Heads:
    """Fresh heads of ``config.kind`` on ``trunk``; ``draft_ids_V``: reduced draft vocabulary, ascending token ids.

    Raises UnsupportedModel where the trunk lacks a part that this kind copies.
    """
    return _KINDS[config.kind](trunk, config, draft_ids_V)


def in_type(heads: Heads, dtype: torch.dtype) -> Heads:
    """``heads`` in ``dtype``, but for what the trunk's family keeps in float32: routers, whose choices hang on it."""
    marks = tuple(getattr(heads.trunk.model, "_keep_in_fp32_modules_strict", None) or ())
    kept = {
        name: tensor.data.float()
        for name, tensor in [*heads.named_parameters(), *heads.named_buffers()]
        if any(mark in name for mark in marks)
    }
    heads = heads.to(dtype)
    for name, tensor in [*heads.named_parameters(), *heads.named_buffers()]:
        if name in kept:
            tensor.data = kept[name]
    return heads
