"""DepthPolicy: how much each row is drafted in the next step, from what steps cost and drafts gained so far.

It maximises goodput = sum over rows of E[K] / seconds of the step. Depth 0 is a candidate like any other, and a step of
depth 0 for all rows drafts nothing at all. What is not chosen is probed now and then, at the price of a small share of
the time. A target for acceptance would not do: at one and the same acceptance the profit changes its sign with the
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretell.decoding.cost import bucket
from foretell.decoding.estimates import Estimates, RowView
from foretell.decoding.goodput import MARGIN, Choice, best_shapes, tree_for
from foretell.decoding.probes import Probes
from foretell.decoding.shape import Shape
from foretell.errors import UsageError

_COLD_START = (0, 1, 0, 3, 1, 3)
"""Depths of the first steps. 3 because cost may come in stairs: kernels that take 4 rows at once, or 1."""
_NEW_BATCH_SIZE = (0, 1, 0, 1)
_FIRST_TREES = (2, 3, 2, 3, 2, 3)
"""Levels of the first trees; when these are done, trees are known well enough to be chosen."""
_DOUBT = 1.25
"""First costs may be wrong by as much."""


@dataclass(frozen=True)
class RowRecord:
    """What a step did for a row: what was to be drafted, drafted nodes and accepted tokens.

    ``num_judged``: levels that the verdict covers, fewer where the text ended inside its draft. ``is_given``: the draft
    cost nothing and says nothing of the drafter.
    """

    view: RowView
    shape: Shape
    num_drafted: int
    num_accepted: int
    num_judged: int
    is_given: bool = False


@dataclass(frozen=True)
class StepRecord:
    """What a step did, and its seconds by part.

    ``num_other_nodes``: nodes of the pass that are neither root nor draft, as in a chunk of a prompt; the costs of such
    a step are not learnt.
    """

    rows: Sequence[RowRecord]
    draft_s: float
    verify_s: float
    other_s: float
    num_other_nodes: int = 0


class DepthPolicy:
    """Chooses shapes before a step (``choose``) and learns after it (``observe``), for one engine's rows.

    ``probe_share``: bound on the share of all time that is lost by measuring instead of doing what looks best.
    """

    def __init__(self, max_depth: int, probe_share: float = 0.02) -> None:
        if isinstance(max_depth, bool) or not isinstance(max_depth, int) or max_depth < 0:
            raise UsageError(f"max_depth is {max_depth!r}; give an integer of at least 0")
        if not 0 <= probe_share < 1:
            raise UsageError(f"probe_share is {probe_share!r}; give a share of the time from 0 to below 1")
        self.max_depth = max_depth
        self.estimates = Estimates()
        self.probes = Probes(probe_share, max_depth)
        self._calibrated: dict[int, int] = {}  # first measurements done, by bucket of rows
        self._num_first_trees = 0
        self._tokens_per_s: float | None = None  # what the best choice of this step promised
        self._exploring = False  # this step does something else

    def choose(self, rows: Sequence[RowView], num_other_nodes: int = 0) -> list[Shape]:
        """A shape for each row of the next step, no deeper than the row's limit."""
        self._exploring, self._tokens_per_s = False, None
        limits = [0 if row.fixed else min(self.max_depth, row.depth_limit) for row in rows]
        knows_trees = self._num_first_trees >= len(_FIRST_TREES)
        best = best_shapes(rows, limits, num_other_nodes, self.estimates, knows_trees)
        if not any(limits) or num_other_nodes or any(row.fixed and row.fixed.depth for row in rows):
            return best.shapes
        chosen = self._first_measurements(rows, limits)
        if chosen is None and not knows_trees:
            chosen = self._first_trees(rows, limits, best)
        if chosen is None:
            chosen = self.probes.propose(rows, limits, best, self.estimates)
        if chosen is None or chosen == best.shapes:
            return best.shapes
        self._exploring, self._tokens_per_s = True, best.tokens_per_s
        return chosen

    def observe(self, record: StepRecord) -> None:
        """Learn from a step that ``choose`` was asked about. Prefill alone is no step of this kind."""
        for row in record.rows:
            if not row.is_given:
                acceptance = self.estimates.acceptance(row.shape)
                acceptance.observe(row.view.label, row.num_judged, row.num_accepted, row.view.row_id)
        self.estimates.advance()
        num_rows = len(record.rows)
        num_nodes = num_rows + sum(row.num_drafted for row in record.rows)
        if record.num_other_nodes == 0:
            self._learn_costs(record, num_nodes)
        if self._exploring and self._tokens_per_s:
            # The pass as it usually is: its hiccups are not the probe's fault. Drafting as it was: heads that were off
            # have to catch up.
            step_s = record.draft_s + (self.estimates.cost.pass_s(num_rows, num_nodes) or 0.0)
            num_tokens = num_rows + sum(row.num_accepted for row in record.rows)
            self.probes.charge(step_s - num_tokens / self._tokens_per_s)
        self.probes.advance(record.draft_s + record.verify_s + record.other_s)

    def forget(self, row_id: int) -> None:
        """A row is finished."""
        self.estimates.forget(row_id)

    def _learn_costs(self, record: StepRecord, num_nodes: int) -> None:
        cost = self.estimates.cost
        cost.observe_pass(len(record.rows), num_nodes, record.verify_s + record.other_s)
        drafted = [row for row in record.rows if row.num_drafted and not row.is_given]
        chains = [row.num_drafted for row in drafted if row.shape.is_chain]
        trees = [row.shape.depth for row in drafted if not row.shape.is_chain]
        if chains and not trees:  # of a mixed step it is not known which took how long
            cost.observe_draft(len(chains), max(chains), record.draft_s)
        elif trees and not chains:
            cost.observe_tree(len(trees), max(trees), record.draft_s)

    def _first_measurements(self, rows: Sequence[RowView], limits: list[int]) -> list[Shape] | None:
        """Chains that fill the empty cells: at the very start, and where the batch has a size not seen before."""
        size = bucket(len(rows))
        depths = _COLD_START if next(iter(self._calibrated), size) == size else _NEW_BATCH_SIZE
        done = self._calibrated.setdefault(size, 0)
        if done >= len(depths):
            return None
        self._calibrated[size] += 1
        depth = depths[done]
        if depth and depths is _NEW_BATCH_SIZE and not self._could_pay(rows, limits):
            depth = 0
        return [Shape.chain(min(depth, limit)) for limit in limits]

    def _first_trees(self, rows: Sequence[RowView], limits: list[int], best: Choice) -> list[Shape] | None:
        """Trees wherever they may be drafted, if they would pay were all of their levels accepted."""
        levels = _FIRST_TREES[self._num_first_trees]
        trees = [tree_for(row, limit, levels) for row, limit in zip(rows, limits, strict=True)]
        if not any(trees) or best.tokens_per_s is None:
            return None
        shapes = [tree or shape for tree, shape in zip(trees, best.shapes, strict=True)]
        most_tokens = len(rows) + sum(shape.depth for shape in shapes)
        if most_tokens * _DOUBT < best.tokens_per_s * self.estimates.step_s(shapes):
            return None
        self._num_first_trees += 1
        return shapes

    def _could_pay(self, rows: Sequence[RowView], limits: list[int]) -> bool:
        """Would drafting pay if the trunk judged the drafts for nothing?"""
        plain_s = self.estimates.cost.pass_s(len(rows), len(rows)) or 0.0
        draft_s = self.estimates.cost.draft_s(len(rows), 1)
        gain = sum(self.estimates.gain(row, Shape.chain(1)) for row, limit in zip(rows, limits, strict=True) if limit)
        return (len(rows) + gain) * plain_s >= len(rows) * (plain_s + draft_s) * (1 + MARGIN)
