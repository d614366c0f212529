"""StepCost: seconds of a step, learnt while it runs.

Three tables. The trunk's pass, with everything of a step that is not drafting, by (rows, nodes of the pass): the c(n)
that decides whether speculation pays. Drafting by (rows that draft, depth), that of trees by (rows that draft, levels).
A cell keeps its last few samples and takes their lower third: a shared machine is late now and then and never early, so
the median would still be too easily moved. Context length is left out: it moves all cells alike, and old samples give
way to new ones.
"""

from __future__ import annotations

from foretell.decoding.curve import Curve, rising

_NUM_SAMPLES = 9  # a cell's memory; seven slower samples move it, three faster ones
_NUM_KEPT = 3  # samples that stay however old they are, until newer ones come
_MAX_AGE = 200  # observations
_TOLERANCE = 0.01  # a point stays where a sample moves it by less, so that curves need not be made anew every step
_POOLED = 0  # the row of a table that holds the samples of all row counts

Sample = tuple[int, float, float]
"""(when, in observations; nodes or depth; seconds)."""


def bucket(count: int) -> int:
    """Rows: exact up to 8, then the next power of two."""
    return count if count <= 8 else 1 << (count - 1).bit_length()


def node_bucket(count: int) -> int:
    """Nodes: exact up to 8, then four buckets an octave (10, 12, 14, 16, 20, ...), so that depths stay apart."""
    if count <= 8:
        return count
    step = 1 << max(0, (count - 1).bit_length() - 3)
    return -(-count // step) * step


class Cell:
    """The last samples of one bucket."""

    __slots__ = ("point", "samples")

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.point = (0.0, 0.0, 0)
        """Mean nodes (or depth), lower third of the seconds, number of samples."""

    def add(self, sample: Sample) -> bool:
        """Count one sample; too old ones go. True if the point moved."""
        samples = self.samples
        samples.append(sample)
        while len(samples) > _NUM_SAMPLES or (len(samples) > _NUM_KEPT and samples[0][0] < sample[0] - _MAX_AGE):
            del samples[0]
        seconds = sorted([s for _, _, s in samples])[(len(samples) - 1) // 3]
        at = sum([x for _, x, _ in samples]) / len(samples)
        old_at, old_seconds, old_count = self.point
        if len(samples) == old_count and at == old_at and abs(seconds - old_seconds) <= _TOLERANCE * old_seconds:
            return False
        self.point = (at, seconds, len(samples))
        return True


class CostTable:
    """Samples by (rows, x); ``anchored``: nothing costs nothing, at x = 0."""

    def __init__(self, anchored: bool) -> None:
        self.anchored = anchored
        self.cells: dict[int, dict[int, Cell]] = {_POOLED: {}}
        self._curves: dict[int, Curve] = {}

    def add(self, rows: int, x: int, sample: Sample) -> bool:
        """Count a sample of bucket ``x`` for these rows, and for all; True if a curve changed."""
        cells = [self.cells.setdefault(key, {}).setdefault(x, Cell()) for key in (rows, _POOLED)]
        if moved := any([cell.add(sample) for cell in cells]):
            self._curves.clear()
        return moved

    def curve(self, rows: int) -> Curve:
        """What is known for this many rows, filled up with what other row counts say."""
        if (found := self._curves.get(rows)) is None:
            if rows == _POOLED:
                found = self._own(rows)
            elif rows in self.cells:
                found = self._own(rows).beside(self.curve(_POOLED))
            else:
                found = self.curve(_POOLED)
            self._curves[rows] = found
        return found

    def _own(self, rows: int) -> Curve:
        points = [cell.point for _, cell in sorted(self.cells.get(rows, {}).items())]
        anchor = [(0.0, 0.0)] if self.anchored and points else []
        sure = [point for point in points if point[2] > 1]
        if len(sure) < len(points) and (sure or anchor):
            # One sample may have come at a bad moment: it does not count where it is above what the others promise.
            line = Curve(anchor + rising(sure))
            points = [(x, y if n > 1 else min(y, line.at(x) or 0.0), n) for x, y, n in points]
        return Curve(anchor + rising(points))


class StepCost:
    """Learns and predicts the seconds of a step."""

    def __init__(self) -> None:
        self._passes = CostTable(anchored=False)
        self._drafts = CostTable(anchored=True)
        self._trees = CostTable(anchored=True)
        self._draft_ranges: dict[tuple[int, int], list[float]] = {}
        self._num_observed = 0

    def observe_pass(self, num_rows: int, num_nodes: int, seconds: float) -> None:
        """A step without its drafting: rows, nodes of its pass (roots included), seconds."""
        self._num_observed += 1
        self._passes.add(bucket(num_rows), node_bucket(num_nodes), (self._num_observed, num_nodes, seconds))

    def observe_draft(self, num_drafting: int, depth: int, seconds: float) -> None:
        """The drafting of chains, the deepest of them ``depth``, for so many rows."""
        if self._drafts.add(bucket(num_drafting), depth, (self._num_observed, depth, seconds)):
            self._draft_ranges.clear()

    def observe_tree(self, num_drafting: int, levels: int, seconds: float) -> None:
        """The drafting of trees, the deepest of so many levels, for so many rows."""
        self._trees.add(bucket(num_drafting), levels, (self._num_observed, levels, seconds))

    def pass_s(self, num_rows: int, num_nodes: int) -> float | None:
        """Seconds of a step without its drafting; None before the first observation."""
        return self._passes.curve(bucket(num_rows)).at(num_nodes)

    def pass_range(self, num_rows: int, low: int, high: int) -> list[float] | None:
        """``pass_s`` for ``low`` to ``high`` nodes."""
        curve = self._passes.curve(bucket(num_rows))
        return curve.range(low, high) if curve.xs else None

    def draft_s(self, num_drafting: int, depth: int) -> float:
        """Seconds of drafting; 0 at depth 0, and before the first draft, so that one is tried."""
        return (self._drafts.curve(bucket(num_drafting)).at(depth) or 0.0) if depth and num_drafting else 0.0

    def tree_s(self, num_drafting: int, levels: int) -> float:
        """Seconds of drafting trees; 0 before the first one."""
        return self._trees.curve(bucket(num_drafting)).at(levels) or 0.0

    def draft_range(self, num_drafting: int, depth: int) -> list[float]:
        """``draft_s`` for 0 to ``num_drafting`` rows."""
        if (found := self._draft_ranges.get((num_drafting, depth))) is None:
            by_bucket: dict[int, float] = {}
            found = [0.0]
            for rows in range(1, num_drafting + 1):
                if (key := bucket(rows)) not in by_bucket:
                    by_bucket[key] = self.draft_s(rows, depth)
                found.append(by_bucket[key])
            self._draft_ranges[num_drafting, depth] = found
        return found
