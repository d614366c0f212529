"""Probes: trying drafts other than those that look best, within a share of the time."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.decoding.estimates import Estimates, RowView
from foretell.decoding.goodput import TREE_LEVELS, Choice, tree_for
from foretell.decoding.shape import Shape

_STEPS = 2  # in a row, because heads that were off must catch up first
_PAUSE = 16  # steps from one probe to the next, at least


class Probes:
    """Proposes probes and keeps the account: seconds lost by all exploring, against ``share`` of all seconds.

    What estimates say of a depth that is never used grows old: costs change with the machine, acceptance with the text.
    """

    def __init__(self, share: float, max_depth: int) -> None:
        self.share = share
        self.max_depth = max_depth
        self.elapsed_s = 0.0
        """Seconds of all steps."""
        self.lost_s = 0.0
        """Of these, seconds lost by doing something else than what looked best."""
        self._num_left = self._num_since = self._num_tried = 0
        self._label, self._depth, self._tree = "", 0, False
        self._is_waiting = False

    def propose(
        self, rows: Sequence[RowView], limits: Sequence[int], best: Choice, estimates: Estimates
    ) -> list[Shape] | None:
        """Now and then, other drafts for the rows of one label; None otherwise."""
        if self._num_left:
            return self._shapes(rows, limits, best.shapes)
        if self._num_since < _PAUSE or best.tokens_per_s is None:
            return None
        if not self._is_waiting:
            self._turn(rows, limits, best.shapes)
        shapes = self._shapes(rows, limits, best.shapes)
        lost_s = max(0.0, estimates.step_s(shapes) - estimates.tokens(rows, shapes) / best.tokens_per_s)
        # What is dear waits until there is enough for it, or what is cheap would be all that is ever tried.
        self._is_waiting = self.lost_s + _STEPS * lost_s > self.share * self.elapsed_s
        if self._is_waiting:
            return None
        self._num_since, self._num_left = 0, _STEPS
        return shapes

    def charge(self, lost_s: float) -> None:
        """A step that did not do what looked best lost so many seconds by it, or gained them."""
        self.lost_s = max(0.0, self.lost_s + lost_s)
        if self._num_left == 1 and lost_s < 0:
            self._num_left = 2  # it pays: go on until the estimates say so too

    def advance(self, step_s: float) -> None:
        """A step is over."""
        self.elapsed_s += step_s
        self._num_since += 1
        self._num_left = max(0, self._num_left - 1)

    def _turn(self, rows: Sequence[RowView], limits: Sequence[int], best: list[Shape]) -> None:
        """Each label in turn; for it something beside what was chosen, or all there is in turn, or, where trees may be
        drafted, the other kind.
        """
        self._num_tried += 1
        labels = sorted({row.label for row, limit in zip(rows, limits, strict=True) if limit})
        rounds, which = divmod(self._num_tried, len(labels))
        self._label = labels[which]
        chosen = max(
            (shape for row, shape in zip(rows, best, strict=True) if row.label == self._label), key=lambda s: s.depth
        )
        levels = TREE_LEVELS if any(row.num_nodes and limit for row, limit in zip(rows, limits, strict=True)) else ()
        rounds, turn = divmod(rounds, 3 if levels else 2)
        self._tree = not chosen.is_chain
        if turn == 0:
            self._depth = chosen.depth + (1 if rounds % 2 == 0 or chosen.depth < 2 else -1)
        elif turn == 1:
            every = [*((depth, False) for depth in range(self.max_depth + 1)), *((depth, True) for depth in levels)]
            self._depth, self._tree = every[rounds % len(every)]
        else:
            self._depth, self._tree = chosen.depth, not self._tree

    def _shapes(self, rows: Sequence[RowView], limits: Sequence[int], best: list[Shape]) -> list[Shape]:
        return [
            shape if row.label != self._label or row.fixed else self._shape(row, limit)
            for row, limit, shape in zip(rows, limits, best, strict=True)
        ]

    def _shape(self, row: RowView, limit: int) -> Shape:
        levels = min(max(self._depth, TREE_LEVELS[0]), TREE_LEVELS[-1])
        tree = tree_for(row, limit, levels) if self._tree else None
        return tree or Shape.chain(min(self._depth, limit, self.max_depth))
