"""One decode step for a batch of rows: draft, one trunk pass, verify, commit or rewind. Depth 0 is plain decoding."""

from __future__ import annotations

import time
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace

import torch

from foretell.decoding.cache import KVCache
from foretell.decoding.drafter import Drafter
from foretell.decoding.judge import judge, refuse_not_finite
from foretell.decoding.passes import PassInput, PassRow
from foretell.decoding.ranks import share_drafts
from foretell.decoding.scheduler import Work
from foretell.models.decoder import States
from foretell.models.trunk import Trunk
from foretell.types import Draft, Verdict


@dataclass
class StepTimes:
    """Seconds spent in a number of steps, by part."""

    draft_s: float = 0.0
    verify_s: float = 0.0
    other_s: float = 0.0
    num_steps: int = 0

    def add(self, other: StepTimes) -> None:
        """Add up."""
        self.draft_s += other.draft_s
        self.verify_s += other.verify_s
        self.other_s += other.other_s
        self.num_steps += other.num_steps

    @property
    def total_s(self) -> float:
        """All parts together."""
        return self.draft_s + self.verify_s + self.other_s


class DecodeStep:
    """Runs the trunk over what the scheduler planned. ``width``: least number of tokens of a pass.

    ``exact``: every row has a pass to itself, so that shapes, and with them rounding, are those of its single run.

    With packed 16-bit weights a single row whose prompt is read in the same pieces has bit for bit the states and
    logits of plain decoding, whatever is drafted (up to 63 tokens): keys come in whole blocks (KVCache), no pass has
    fewer nodes than ``smallest_pass``, and no projection fewer rows, because kernels for one row may round otherwise
    than those for several.
    """

    def __init__(self, trunk: Trunk, cache: KVCache, width: int = 1, exact: bool = False) -> None:
        self.trunk = trunk
        self.exact = exact
        self.cache = cache
        self.drafter: Drafter | None = None
        self.width = width

    def __call__(self, works: Items[Work]) -> StepTimes:
        """Advance every row: read a part of its prompt, or take at least one token."""
        times = StepTimes()
        for group in self._groups(works):
            times.add(self._run(group))
        return replace(times, num_steps=1)

    def _groups(self, works: Items[Work]) -> list[Items[Work]]:
        """Rows that share a pass: all of them. Exactly: each alone. Recurrent layers pad, so prompts go alone there."""
        if self.exact:
            return [[work] for work in works]
        if self.cache.recurrent is None:
            return [works]
        decoding = [work for work in works if work.row.num_pending == 1]
        return [group for group in (decoding, *[[w] for w in works if w.row.num_pending > 1]) if group]

    def _run(self, works: Items[Work]) -> StepTimes:
        """One pass."""
        t0 = time.perf_counter()
        drafts = self._draft(works)
        t1 = time.perf_counter()
        pending = [work.row.tokens_from(work.row.num_cached, work.stop) for work in works]
        pass_input = PassInput.build(
            self.cache,
            [_pass_row(work, len(p), draft) for work, p, draft in zip(works, pending, drafts, strict=True)],
            self.trunk.device,
            self.width,
            packed=self.cache.recurrent is None,
        )
        nodes = [[*p, *draft.token_ids] for p, draft in zip(pending, drafts, strict=True)]
        if self.cache.recurrent is not None:
            self.cache.recurrent.begin([work.row for work in works], [len(n) for n in nodes], [len(p) for p in pending])
        states = self.trunk.states(
            self.trunk.embed(pass_input.token_ids(nodes)), pass_input.positions_BT, pass_input.masks, cache=self.cache
        )
        parts = pass_input.split(states.post_BTD)
        refuse_not_finite(works, [part[: len(p)] for part, p in zip(parts, pending, strict=True)])
        verdicts = judge(self.trunk, works, pending, drafts, pass_input, states, self.width)
        t2 = time.perf_counter()
        rows = zip(works, pending, drafts, verdicts, pass_input.split_states(states), strict=True)
        for work, p, draft, verdict, row_states in rows:
            self._commit(work, len(p), draft, verdict, row_states)
        return StepTimes(t1 - t0, t2 - t1, time.perf_counter() - t2, 1)

    def _draft(self, works: Items[Work]) -> list[Draft]:
        drafts = [Draft() for _ in works]
        asked = [b for b, work in enumerate(works) if work.shape.depth and not work.row.forced]
        for b, work in enumerate(works):
            if work.row.forced:
                drafts[b] = Draft.chain(work.row.forced[: work.shape.depth])
        if asked and self.drafter is not None:
            made = self.drafter.draft([works[b].row for b in asked], [works[b].shape for b in asked])
            made = share_drafts(self.trunk.tp_group, made)
            for b, draft in zip(asked, made, strict=True):
                drafts[b] = draft
        return drafts

    def _commit(self, work: Work, num_pending: int, draft: Draft, verdict: Verdict | None, states: States) -> None:
        """What is accepted stays in the cache, a tree's path moved behind the root; the rest is overwritten later."""
        row, start = work.row, work.row.num_cached
        num_new, path = num_pending, []
        if verdict is not None and row.error is None:
            num_taken = row.commit(draft, verdict)
            work.draft, work.num_accepted, work.num_taken = draft, min(num_taken, len(verdict.path)), num_taken
            path = verdict.path[: max(0, num_taken - 1)]
            num_new += len(path)
        if path != list(range(len(path))):
            first = start + num_pending
            self.cache.compact(row.tables, [first + node for node in path], first)
            kept = torch.tensor([*range(num_pending), *[num_pending + node for node in path]])
            states = States(*(None if part is None else part[kept.to(part.device)] for part in states))  # type: ignore[arg-type]
        if self.cache.recurrent is not None:
            self.cache.recurrent.commit(row, num_new)
        row.num_cached = start + num_new
        if self.drafter is not None and row.depth and row.finish_reason is None:
            kept_states = (None if part is None else part[:num_new] for part in states)
            self.drafter.observe(row, start, States(*kept_states))  # type: ignore[arg-type]


def _pass_row(work: Work, num_pending: int, draft: Draft) -> PassRow:
    """Pending tokens lie at their positions, drafted nodes behind them in their order."""
    row = work.row
    if draft.is_chain:
        return PassRow.stretch(row.tables, row.num_cached, num_pending + len(draft))
    first = len(row)
    positions = [*range(row.num_cached, first), *[first - 1 + depth for depth in draft.depths]]
    seen: list[list[int] | None] = [None] * num_pending
    seen += [[first + n for n in draft.path(node)] for node in range(len(draft))]
    return PassRow(row.tables, first, positions, range(row.num_cached, first + len(draft)), seen)
