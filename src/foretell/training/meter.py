"""Sums and counts behind the logged means, so that means are right over micro-batches and processes."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Meter:
    """Named means. ``add`` a sum over some positions and their number; ``take`` the means and begin anew."""

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}

    def add(self, name: str, total: float | torch.Tensor, count: int) -> None:
        """Count ``total``, the sum over ``count`` positions."""
        entry = self._sums.setdefault(name, [0.0, 0.0])
        entry[0] += float(total)
        entry[1] += count

    def take(self, reduce: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, float]:
        """Means since the last call; those without a position are left out. ``reduce`` sums over processes."""
        names = sorted(self._sums)
        if not names:
            return {}
        sums = reduce(torch.tensor([self._sums[name] for name in names], dtype=torch.float64)).tolist()
        self._sums = {}
        return {name: total / count for name, (total, count) in zip(names, sums, strict=True) if count}
