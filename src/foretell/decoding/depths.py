"""DepthChooser: how much is drafted for every row of a step: what was asked for, or what the policy finds best."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Any

from foretell.decoding.drafter import Drafter
from foretell.decoding.estimates import RowView
from foretell.decoding.policy import DepthPolicy, RowRecord, StepRecord
from foretell.decoding.ranks import share_shapes
from foretell.decoding.scheduler import Work
from foretell.decoding.sequence import Sequence
from foretell.decoding.shape import Shape
from foretell.decoding.step import StepTimes
from foretell.errors import SamplingError

AUTO_DEPTH = 8
"""Deepest draft that the policy considers."""
_FORCED_DEPTH = 16
"""Tokens that a grammar may force in one step."""


class DepthChooser:
    """A row's own depth, or the policy's where that is "auto", within what row and drafter allow.

    Where a row's grammar forces at least as many tokens as would be drafted, those are its draft. ``most``: no more is
    chosen or forced, so that a pass of an exact engine keeps its shape.
    """

    def __init__(self, tp_group: Any = None, most: int = _FORCED_DEPTH) -> None:
        self.drafter: Drafter | None = None
        self._most = most
        self.policy = DepthPolicy(min(AUTO_DEPTH, most))
        self._tp_group = tp_group
        self._views: dict[Sequence, RowView] = {}  # what the policy was asked about

    def choose(self, rows: list[Sequence], num_other_nodes: int) -> list[Shape]:
        """A shape for every row that decodes; ``num_other_nodes``: of the pass, neither root nor draft."""
        self._views = {}
        limits = [0 if self.drafter is None else min(row.depth_limit, self.drafter.depth_for(row)) for row in rows]
        views = [_view(row, limit) for row, limit in zip(rows, limits, strict=True)]
        if any(view.fixed is None for view in views):
            self._views = dict(zip(rows, views, strict=True))
            shapes = self.policy.choose(views, num_other_nodes)
        else:
            shapes = [view.fixed or Shape.chain(0) for view in views]
        return share_shapes(self._tp_group, [self._forced(*each) for each in zip(rows, shapes, strict=True)])

    def observe(self, works: Items[Work], times: StepTimes) -> None:
        """Learn from a step."""
        decoding = [work for work in works if work.row in self._views]
        if decoding:
            num_others = sum(work.num_read for work in works) - len(decoding)
            records = [_record(work, self._views[work.row]) for work in decoding]
            self.policy.observe(StepRecord(records, times.draft_s, times.verify_s, times.other_s, num_others))
        self._views = {}

    def forget(self, row: Sequence) -> None:
        """The row has ended."""
        self.policy.forget(id(row))

    def _forced(self, row: Sequence, shape: Shape) -> Shape:
        try:
            row.forced = row.rules.forced(min(row.depth_limit, self._most)) if row.depth else []
        except SamplingError:  # it will be met again, and end the row, where the text is judged
            row.forced = []
        if len(row.forced) < max(1, shape.depth):
            row.forced = []
            return shape
        return Shape.chain(len(row.forced))


def _view(row: Sequence, limit: int) -> RowView:
    if row.depth == "auto":
        return RowView(id(row), limit, row.label, None, row.num_nodes)
    return RowView(id(row), limit, row.label, Shape(row.depth, max(row.num_nodes, row.depth)).cut(limit))


def _record(work: Work, view: RowView) -> RowRecord:
    """What the policy learns of a row. A text that ended inside its draft says nothing of what stood behind its end."""
    num_judged = work.num_accepted if work.row.finish_reason else max(work.draft.depths, default=0)
    return RowRecord(view, work.shape, len(work.draft), work.num_accepted, num_judged, bool(work.row.forced))
