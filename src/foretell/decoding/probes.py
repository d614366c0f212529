"""Probes: trying depths other than the one that looks best, within a share of the time."""

from __future__ import annotations

from foretell.decoding.acceptance import AcceptanceByClass
from foretell.decoding.cost import StepCost
from foretell.decoding.goodput import Choice, RowView

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
        self._label, self._depth = "", 0

    def propose(
        self, rows: list[RowView], limits: list[int], best: Choice, cost: StepCost, acceptance: AcceptanceByClass
    ) -> list[int] | None:
        """Now and then, another depth for the rows of one label; None otherwise."""
        if self._num_left:
            return self._depths(rows, limits, best.depths)
        if self._num_since < _PAUSE or best.tokens_per_s is None:
            return None
        self._turn(rows, limits, best.depths)
        depths = self._depths(rows, limits, best.depths)
        seconds = cost.pass_s(len(rows), len(rows) + sum(depths)) or 0.0
        seconds += cost.draft_s(sum(map(bool, depths)), max(depths))
        tokens = sum(
            acceptance.expected_tokens(row.label, depth, row.row_id) for row, depth in zip(rows, depths, strict=True)
        )
        lost_s = max(0.0, seconds - tokens / best.tokens_per_s)
        if self.lost_s + _STEPS * lost_s > self.share * self.elapsed_s:
            return None
        self._num_since, self._num_left = 0, _STEPS
        return depths

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

    def _turn(self, rows: list[RowView], limits: list[int], best: list[int]) -> None:
        """Each label in turn; of the depths, every second time one beside the chosen one, else all in turn."""
        self._num_tried += 1
        labels = sorted({row.label for row, limit in zip(rows, limits, strict=True) if limit})
        rounds, which = divmod(self._num_tried, len(labels))
        self._label = labels[which]
        chosen = max(depth for row, depth in zip(rows, best, strict=True) if row.label == self._label)
        beside = chosen + (1 if rounds % 4 == 0 or chosen < 2 else -1)
        self._depth = beside if rounds % 2 == 0 else rounds // 2 % (self.max_depth + 1)

    def _depths(self, rows: list[RowView], limits: list[int], best: list[int]) -> list[int]:
        return [
            min(self._depth, limit) if row.label == self._label else depth
            for row, limit, depth in zip(rows, limits, best, strict=True)
        ]
