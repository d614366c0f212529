"""BenchCosts: c(n) as a bench measured it, in the form in which a plan asks for costs."""

from __future__ import annotations

from foretell.decoding.curve import Curve, rising
from foretell.planning.bench_file import BenchFile, Sample


class BenchCosts:
    """Mean seconds of the steps of one batch size. Between measured node counts they lie on a line; more nodes are
    never cheaper (isotonic, weighted by steps); row counts that were not measured lie where all rows together do.
    """

    def __init__(self, bench: BenchFile, batch: int) -> None:
        by_rows: dict[int, dict[int, list[Sample]]] = {}
        for (of_batch, rows, nodes), sample in bench.passes.items():
            if of_batch == batch:
                by_rows.setdefault(rows, {}).setdefault(nodes, []).append(sample)
        pooled: dict[int, list[Sample]] = {}
        for cells in by_rows.values():
            for nodes, samples in cells.items():
                pooled.setdefault(nodes, []).extend(samples)
        self._pooled = _curve(pooled)
        self._passes = {rows: _curve(cells).beside(self._pooled) for rows, cells in by_rows.items()}
        drafts: dict[int, dict[int, list[Sample]]] = {}
        for (of_batch, _, depth, nodes), sample in bench.drafts.items():
            if of_batch == batch:
                drafts.setdefault(depth, {}).setdefault(nodes, []).append(sample)
        self._drafts = {depth: _curve(cells) for depth, cells in drafts.items()}

    @property
    def is_known(self) -> bool:
        """False where the bench has no step costs at this batch size."""
        return bool(self._passes)

    def pass_s(self, batch: int, nodes: float) -> float:
        """Seconds of a pass over ``nodes`` tokens of each of ``batch`` rows, and of everything behind it."""
        return self._passes.get(batch, self._pooled).at(batch * nodes) or 0.0

    def draft_s(self, batch: int, depth: int, num_true: float, width: float) -> float:
        """Seconds of drafting; what it reads is in the measured seconds already."""
        curve = self._drafts.get(depth)
        return (curve.at(batch * depth * width) or 0.0) if curve else 0.0

    def knows_depth(self, depth: int) -> bool:
        """True where drafting so deep was measured."""
        return depth == 0 or depth in self._drafts


def _curve(cells: dict[int, list[Sample]]) -> Curve:
    points = []
    for nodes, samples in sorted(cells.items()):
        num_steps = sum(steps for _, steps in samples)
        points.append((float(nodes), sum(s * steps for s, steps in samples) / num_steps, num_steps))
    return Curve(rising(points))
