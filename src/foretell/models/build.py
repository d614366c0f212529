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
