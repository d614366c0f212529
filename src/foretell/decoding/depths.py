"""DepthChooser: how much is drafted for every row of a step: what was asked for, or what the policy finds best."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Any

from foretell.decoding.chain_or_tree import ChainOrTree
from foretell.decoding.drafter import Drafter, Shape
from foretell.decoding.goodput import RowView
from foretell.decoding.policy import DepthPolicy, StepRecord
from foretell.decoding.ranks import share_shapes
from foretell.decoding.scheduler import Work
from foretell.decoding.sequence import Sequence
from foretell.decoding.step import StepTimes

AUTO_DEPTH = 8
"""Deepest draft that the policy considers."""
TREE_DEPTH = 2
"""Depth of the trees that it tries: the best one measured (docs/benchmarks.md)."""
_FORCED_DEPTH = 16
"""Tokens that a grammar may force in one step."""


class DepthChooser:
    """A row's own depth, or the policy's where that is "auto", within what row and drafter allow.

    Rows on "auto" with a budget of nodes are drafted trees as long as those bring more than the policy's chains.
    Where a row's grammar forces at least as many tokens as would be drafted, those are its draft. ``most``: no more is
    chosen or forced, so that a pass of an exact engine keeps its shape.
    """

    def __init__(self, tp_group: Any = None, most: int = _FORCED_DEPTH) -> None:
        self.drafter: Drafter | None = None
        self._most = most
        self.policy = DepthPolicy(min(AUTO_DEPTH, most))
        self.trees = ChainOrTree()
        self._may_branch = False  # some row of this step has a budget of nodes
        self._tp_group = tp_group
        self._views: dict[Sequence, RowView] = {}

    def choose(self, rows: list[Sequence], num_other_nodes: int) -> list[Shape]:
        """A shape for every row that decodes; ``num_other_nodes``: of the pass, neither root nor draft."""
        limits = [0 if self.drafter is None else min(row.depth_limit, self.drafter.depth_for(row)) for row in rows]
        shapes = [
            Shape.chain(0) if row.depth == "auto" else Shape(row.depth, max(row.num_nodes, row.depth)).cut(limit)
            for row, limit in zip(rows, limits, strict=True)
        ]
        auto = [row for row in rows if row.depth == "auto"]
        self._may_branch = any(row.num_nodes for row in auto) and not num_other_nodes
        if self._may_branch and self.trees.wants_tree:
            shapes = [self._tree(*part) for part in zip(rows, limits, shapes, strict=True)]
        elif auto:
            shapes = self._ask_policy(rows, limits, shapes, num_other_nodes)
        shapes = [self._forced(row, shape, limit) for row, shape, limit in zip(rows, shapes, limits, strict=True)]
        return share_shapes(self._tp_group, shapes)

    def observe(self, works: Items[Work], counted: Items[tuple[int, int]], times: StepTimes) -> None:
        """Learn from a step; ``counted``: drafted and accepted tokens of every row before it."""
        if self._may_branch:
            num_accepted = [
                work.row.stats.num_accepted_tokens - before for work, (_, before) in zip(works, counted, strict=True)
            ]
            self.trees.observe(len(works) + sum(num_accepted), times.total_s)
        decoding = [i for i, work in enumerate(works) if work.row in self._views]
        if not decoding:
            return
        drafted = [works[i].row.stats.num_draft_tokens - counted[i][0] for i in decoding]
        accepted = [works[i].row.stats.num_accepted_tokens - counted[i][1] for i in decoding]
        ended = [works[i].row.finish_reason is not None for i in decoding]
        judged = [a if end else d for a, d, end in zip(accepted, drafted, ended, strict=True)]
        others = sum(work.num_read - 1 for work in works if work.row in self._views)
        others += sum(work.num_read for work in works if work.row not in self._views)
        views = [self._views[works[i].row] for i in decoding]
        self.policy.observe(
            StepRecord(views, drafted, accepted, times.draft_s, times.verify_s, times.other_s, judged, others)
        )
        self._views = {}

    def forget(self, row: Sequence) -> None:
        """The row has ended."""
        self.policy.forget(id(row))

    def _ask_policy(
        self, rows: list[Sequence], limits: list[int], shapes: list[Shape], num_other_nodes: int
    ) -> list[Shape]:
        self._views = {
            row: RowView(id(row), limit, row.label, None if row.depth == "auto" else shape.num_nodes)
            for row, limit, shape in zip(rows, limits, shapes, strict=True)
        }
        depths = self.policy.choose(list(self._views.values()), num_other_nodes)
        return [
            Shape.chain(depth) if row.depth == "auto" else shape
            for row, depth, shape in zip(rows, depths, shapes, strict=True)
        ]

    def _tree(self, row: Sequence, limit: int, shape: Shape) -> Shape:
        if row.depth != "auto" or not limit:
            return shape
        return Shape(min(TREE_DEPTH, limit), max(row.num_nodes, min(TREE_DEPTH, limit)))

    def _forced(self, row: Sequence, shape: Shape, limit: int) -> Shape:
        row.forced = row.rules.forced(min(row.depth_limit, self._most)) if row.depth else []
        if len(row.forced) < max(1, shape.depth):
            row.forced = []
            return shape
        return Shape.chain(len(row.forced))
