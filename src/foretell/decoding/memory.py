"""Memory that drafters add to a trunk: weights."""

from __future__ import annotations

from torch import nn

from foretell.models.heads import Heads
from foretell.models.packed import PackedLinear


def weights_num_bytes(module: nn.Module) -> int:
    """A module's tensors and their packed copies."""
    own = sum(t.numel() * t.element_size() for t in (*module.parameters(), *module.buffers()))
    return own + sum(
        m.weight.numel() * m.weight.element_size() for m in module.modules() if isinstance(m, PackedLinear)
    )


def heads_num_bytes(heads: Heads) -> int:
    """The heads' own tensors, their packed copies, and the rows of a reduced draft vocabulary."""
    own = weights_num_bytes(heads)
    if heads.draft_ids_V is None or heads.output_parameters(1):
        return own
    copies = 2 if any(isinstance(module, PackedLinear) for module in heads.modules()) else 1
    return own + copies * len(heads.draft_ids_V) * heads.trunk.hidden_size * heads.trunk.dtype.itemsize
