"""DepthPolicy: how deep each row is drafted in the next step, from what steps cost and drafts gained so far.

It maximises goodput = sum over rows of E[K] / seconds of the step. Depth 0 is a candidate like any other, and a step of
depth 0 for all rows drafts nothing at all. What is not chosen is probed now and then, at the price of a small share of
the time. A target for acceptance would not do: at one and the same acceptance the profit changes its sign with the
batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foretell.decoding.acceptance import AcceptanceByClass
from foretell.decoding.cost import StepCost, bucket
from foretell.decoding.goodput import MARGIN, RowView, best_depths
from foretell.decoding.probes import Probes
from foretell.errors import UsageError

_COLD_START = (0, 1, 0, 3, 1, 3)
"""Depths of the first steps. 3 because cost may come in stairs: kernels that take 4 rows at once, or 1."""
_NEW_BATCH_SIZE = (0, 1, 0, 1)
_VERSION = 1


@dataclass
class StepRecord:
    """What a step did: per row drafted and accepted tokens, and seconds by part.

    ``num_judged``: drafted tokens that the verdict covers, below ``num_drafted`` where a text ended inside its draft.
    ``num_other_nodes``: nodes of the pass that are neither root nor draft, as in a chunk of a prompt; the costs of such
    a step are not learnt.
    """

    rows: list[RowView]
    num_drafted: list[int]
    num_accepted: list[int]
    draft_s: float
    verify_s: float
    other_s: float
    num_judged: list[int] | None = None
    num_other_nodes: int = 0


class DepthPolicy:
    """Chooses depths before a step (``choose``) and learns after it (``observe``), for one engine's rows.

    ``probe_share``: bound on the share of all time that is lost by measuring instead of doing what looks best.
    """

    def __init__(self, max_depth: int, probe_share: float = 0.02) -> None:
        if isinstance(max_depth, bool) or not isinstance(max_depth, int) or max_depth < 0:
            raise UsageError(f"max_depth is {max_depth!r}; give an integer of at least 0")
        if not 0 <= probe_share < 1:
            raise UsageError(f"probe_share is {probe_share!r}; give a share of the time from 0 to below 1")
        self.max_depth = max_depth
        self.cost = StepCost()
        self.acceptance = AcceptanceByClass()
        self.probes = Probes(probe_share, max_depth)
        self._calibrated: dict[int, int] = {}  # first measurements done, by bucket of rows
        self._tokens_per_s: float | None = None  # what the best choice of this step promised
        self._exploring = False  # this step does something else

    def choose(self, rows: list[RowView], num_other_nodes: int = 0) -> list[int]:
        """A depth for each row of the next step, from 0 to the row's limit."""
        self._exploring, self._tokens_per_s = False, None
        limits = [min(self.max_depth, row.depth_limit) if row.fixed_depth is None else 0 for row in rows]
        fixed = [min(row.fixed_depth or 0, row.depth_limit) for row in rows]
        if not any(limits):
            return fixed
        best = best_depths(rows, limits, fixed, num_other_nodes, self.cost, self.acceptance)
        if num_other_nodes or any(fixed):
            return best.depths
        chosen = self._first_measurements(rows, limits)
        if chosen is None:
            chosen = self.probes.propose(rows, limits, best, self.cost, self.acceptance)
        if chosen is None or chosen == best.depths:
            return best.depths
        self._exploring, self._tokens_per_s = True, best.tokens_per_s
        return chosen

    def observe(self, record: StepRecord) -> None:
        """Learn from a step that ``choose`` was asked about. Prefill alone is no step of this kind."""
        for row, num_judged, num_accepted in zip(
            record.rows, record.num_judged or record.num_drafted, record.num_accepted, strict=True
        ):
            self.acceptance.observe(row.label, num_judged, num_accepted, row.row_id)
        self.acceptance.advance()
        num_rows, num_nodes = len(record.rows), len(record.rows) + sum(record.num_drafted)
        if record.num_other_nodes == 0:
            self.cost.observe(
                num_rows,
                num_nodes,
                max(record.num_drafted, default=0),
                record.draft_s,
                record.verify_s,
                record.other_s,
                sum(map(bool, record.num_drafted)),
            )
        if self._exploring and self._tokens_per_s:
            # The pass as it usually is: its hiccups are not the probe's fault. Drafting as it was: heads that were off
            # have to catch up.
            step_s = record.draft_s + (self.cost.pass_s(num_rows, num_nodes) or 0.0)
            self.probes.charge(step_s - (num_rows + sum(record.num_accepted)) / self._tokens_per_s)
        self.probes.advance(record.draft_s + record.verify_s + record.other_s)

    def forget(self, row_id: int) -> None:
        """A row is finished."""
        self.acceptance.forget(row_id)

    def as_dict(self) -> dict[str, Any]:
        """What was learnt, as plain values for JSON, so that the next engine on this machine starts warm."""
        return {
            "version": _VERSION,
            "cost": self.cost.as_dict(),
            "acceptance": self.acceptance.as_dict(),
            "calibrated": {str(size): done for size, done in self._calibrated.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], max_depth: int, probe_share: float = 0.02) -> DepthPolicy:
        """A policy that knows what ``as_dict`` gave; raises UsageError for anything else."""
        policy = cls(max_depth, probe_share)
        if not isinstance(data, Mapping) or data.get("version") != _VERSION:
            found = data.get("version") if isinstance(data, Mapping) else data
            raise UsageError(
                f"what the depth policy learnt has version {found!r}, not {_VERSION}; delete it, a new one is learnt"
            )
        try:
            policy.cost = StepCost.from_dict(data["cost"])
            policy.acceptance = AcceptanceByClass.from_dict(data["acceptance"])
            policy._calibrated = {int(size): int(done) for size, done in data["calibrated"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                f"what the depth policy learnt cannot be read ({type(error).__name__}: {error}); delete it, a new one "
                "is learnt"
            ) from error
        return policy

    def _first_measurements(self, rows: list[RowView], limits: list[int]) -> list[int] | None:
        """Depths that fill the empty cells: at the very start, and where the batch has a size not seen before."""
        size = bucket(len(rows))
        depths = _COLD_START if next(iter(self._calibrated), size) == size else _NEW_BATCH_SIZE
        done = self._calibrated.setdefault(size, 0)
        if done >= len(depths):
            return None
        self._calibrated[size] += 1
        depth = depths[done]
        if depth and depths is _NEW_BATCH_SIZE and not self._could_pay(rows, limits):
            return [0] * len(rows)
        return [min(depth, limit) for limit in limits]

    def _could_pay(self, rows: list[RowView], limits: list[int]) -> bool:
        """Would drafting pay if the trunk judged the drafts for nothing?"""
        plain_s = self.cost.pass_s(len(rows), len(rows)) or 0.0
        draft_s = self.cost.draft_s(len(rows), 1)
        gain = sum(
            self.acceptance.gains(row.label, 1, row.row_id)[0] for row, limit in zip(rows, limits, strict=True) if limit
        )
        return (len(rows) + gain) * plain_s >= len(rows) * (plain_s + draft_s) * (1 + MARGIN)
