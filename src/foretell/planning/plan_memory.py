"""Memory of a plan: weights, keys and values, and how many rows fit."""

from __future__ import annotations

from dataclasses import dataclass

from foretell.planning.hardware import CACHE_BYTES, WEIGHT_BYTES
from foretell.planning.roofline import Roofline


@dataclass(frozen=True)
class Memory:
    """Bytes. ``cache_per_token``: keys and values of one more token, trunk and heads; ``cache``: of all rows at this
    context, recurrent states included; ``max_batch``: rows that fit beside the weights.
    """

    trunk: float
    heads: float
    cache_per_token: float
    cache: float
    device: float
    max_batch: int

    @property
    def weights_fit(self) -> bool:
        """True where weights alone do, with or without a row beside them."""
        return self.trunk + self.heads <= self.device


def memory_of(roofline: Roofline, batch: int, depth: int) -> Memory:
    """Of rows at the context of ``roofline`` that are drafted for ``depth`` deep."""
    model, machine = roofline.model, roofline.machine
    weight, number = WEIGHT_BYTES[machine.dtype], CACHE_BYTES[machine.dtype]
    num_modules = model.heads.num_modules(depth)
    trunk, heads = model.parameters * weight, model.heads.parameters * num_modules * weight

    def row_bytes(context: float) -> float:
        return number * (model.row_numbers(context) + num_modules * model.heads.cache.row_numbers(context))

    context = roofline.context
    free, row = machine.num_bytes - trunk - heads, row_bytes(context)
    return Memory(
        trunk=trunk,
        heads=heads,
        cache_per_token=row_bytes(context) - row_bytes(context - 1),
        cache=batch * row,
        device=machine.num_bytes,
        max_batch=max(int(free // row), 0) if row else 0,
    )
