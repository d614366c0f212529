"""Memory that heads add to a trunk."""

from __future__ import annotations

from foretell.models.heads import Heads
from foretell.models.packed import PackedLinear


def heads_num_bytes(heads: Heads) -> int:
    """The heads' own tensors, their packed copies, and the rows of a reduced draft vocabulary.

    Their keys and values are left out; they grow with the text like those of one more layer.
    """
    own = sum(t.numel() * t.element_size() for t in (*heads.parameters(), *heads.buffers()))
    packed = [module for module in heads.modules() if isinstance(module, PackedLinear)]
    own += sum(module.weight.numel() * module.weight.element_size() for module in packed)
    if heads.draft_ids_V is None or heads.output_parameters(1):
        return own
    copies = 2 if packed else 1
    return own + copies * len(heads.draft_ids_V) * heads.trunk.hidden_size * heads.trunk.dtype.itemsize
