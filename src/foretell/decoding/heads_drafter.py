"""heads_drafter: the drafter for a kind of heads."""

from __future__ import annotations

from foretell.decoding.blocks import BlockPool
from foretell.decoding.parallel_drafter import ParallelDrafter
from foretell.decoding.sequential_drafter import SequentialDrafter
from foretell.models.heads import Heads
from foretell.models.sequential import SequentialHeads


def heads_drafter(heads: Heads, pools: dict[str, BlockPool], window: int) -> SequentialDrafter | ParallelDrafter:
    """Sequential heads read what was drafted before; the others read nothing."""
    if isinstance(heads, SequentialHeads):
        return SequentialDrafter(heads, pools, window)
    return ParallelDrafter(heads, pools, window)
