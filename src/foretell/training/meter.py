"""Sums and counts behind the logged means, so that means are right over micro-batches and processes."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Meter:
    """Named means. ``add`` a sum over some positions and their number; ``take`` the means and begin anew."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float | torch.Tensor, float]] = {}

    def add(self, name: str, total: float | torch.Tensor, count: int) -> None:
        """Count ``total``, the sum over ``count`` positions; a tensor is not waited for until ``take``."""
        before, num = self._sums.get(name, (0.0, 0.0))
        self._sums[name] = (before + (total.double() if torch.is_tensor(total) else total), num + count)

    def take(self, reduce: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, float]:
        """Means since the last call; those without a position are left out. ``reduce`` sums over processes."""
        names = sorted(self._sums)
        if not names:
            return {}
        pairs = [(float(total), count) for total, count in map(self._sums.__getitem__, names)]
        sums = reduce(torch.tensor(pairs, dtype=torch.float64)).tolist()
        self._sums = {}
        return {name: total / count for name, (total, count) in zip(names, sums, strict=True) if count}
