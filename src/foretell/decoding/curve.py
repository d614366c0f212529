"""Curve: a measured cost as a function of nodes or depth, between its points and beyond them."""

from __future__ import annotations

from bisect import bisect_right
from math import ceil


class Curve:
    """A rising piecewise linear function through measured points; without points it knows nothing."""

    def __init__(self, points: list[tuple[float, float]]) -> None:
        self.xs = [x for x, _ in points]
        self.ys = [y for _, y in points]
        self.slope = 0.0
        """Beyond the last point: the mean slope over its last octave, wide enough that noise has no say."""
        if len(points) > 1:
            last_x, last_y = points[-1]
            x, y = points[max(0, bisect_right(self.xs, last_x / 2) - 1)]
            self.slope = (last_y - y) / (last_x - x)

    def at(self, x: float) -> float | None:
        """Interpolated or extrapolated value; None where nothing was measured."""
        xs, ys = self.xs, self.ys
        if not xs:
            return None
        i = bisect_right(xs, x)
        if i == 0:
            return ys[0]
        left = ys[i - 1]
        if i == len(xs):
            return left + self.slope * (x - xs[-1])
        return left + (ys[i] - left) * (x - xs[i - 1]) / (xs[i] - xs[i - 1])

    def range(self, low: int, high: int) -> list[float]:
        """Values at ``low``, low + 1, ... ``high``; for a curve with points."""
        xs, ys = self.xs, self.ys
        values: list[float] = []
        x = low
        for i in range(bisect_right(xs, low), len(xs) + 1):
            end = high + 1 if i == len(xs) else min(high + 1, ceil(xs[i]))  # first x of the next piece
            if i == 0:
                values += [ys[0]] * (end - x)
            else:
                slope = (ys[i] - ys[i - 1]) / (xs[i] - xs[i - 1]) if i < len(xs) else self.slope
                start = ys[i - 1] - slope * xs[i - 1]
                values += [start + slope * at for at in range(x, end)]
            x = max(x, end)
        return values

    def beside(self, pooled: Curve) -> Curve:
        """This curve, carried on to both sides by ``pooled``, scaled to meet its ends."""
        if not self.xs:
            return pooled
        first, last = pooled.at(self.xs[0]), pooled.at(self.xs[-1])
        low = self.ys[0] / first if first else 1.0
        high = self.ys[-1] / last if last else 1.0
        points = [(x, y * low) for x, y in zip(pooled.xs, pooled.ys, strict=True) if x < self.xs[0]]
        points += zip(self.xs, self.ys, strict=True)
        points += [(x, y * high) for x, y in zip(pooled.xs, pooled.ys, strict=True) if x > self.xs[-1]]
        return Curve(points)


def rising(points: list[tuple[float, float, int]]) -> list[tuple[float, float]]:
    """Isotonic regression (pool adjacent violators) of (x, y, weight), sorted by x: more nodes are never cheaper."""
    blocks: list[tuple[float, int, list[float]]] = []
    for x, y, weight in points:
        xs = [x]
        while blocks and blocks[-1][0] > y:
            left_y, left_weight, left_xs = blocks.pop()
            y = (left_y * left_weight + y * weight) / (left_weight + weight)
            weight += left_weight
            xs = left_xs + xs
        blocks.append((y, weight, xs))
    return [(x, y) for y, _, xs in blocks for x in xs]
