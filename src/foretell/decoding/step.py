"""One decode step for a batch of rows: draft, one trunk pass, verify, commit or rewind. Depth 0 is plain decoding."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from foretell.decoding.cache import KVCache
from foretell.decoding.drafters import HeadsDrafter
from foretell.decoding.passes import PassInput
from foretell.decoding.sampling import argmax
from foretell.decoding.sequence import Sequence
from foretell.decoding.verify import verify_greedy, verify_sampled
from foretell.models.trunk import Trunk
from foretell.types import Draft, Verdict


@dataclass
class StepTimes:
    """Seconds spent in a number of steps, by part."""

    draft_s: float = 0.0
    verify_s: float = 0.0
    other_s: float = 0.0
    num_steps: int = 0

    def add(self, draft_s: float, verify_s: float, other_s: float) -> None:
        """Count one step."""
        self.draft_s += draft_s
        self.verify_s += verify_s
        self.other_s += other_s
        self.num_steps += 1


class DecodeStep:
    """Owns the trunk's cache and the drafter; rows name their slot in both."""

    def __init__(self, trunk: Trunk, drafter: HeadsDrafter | None, num_slots: int) -> None:
        self.trunk = trunk
        self.drafter = drafter
        self.cache = KVCache(num_slots, trunk.max_positions)

    def admit(self, row: Sequence, slot: int) -> None:
        """Give a new row a slot; its whole prompt is pending."""
        row.slot = slot
        self.cache.commit(slot, 0)
        if self.drafter:
            self.drafter.admit(slot)

    def move(self, row: Sequence, slot: int) -> None:
        """Move a row to another slot."""
        self.cache.move(row.slot, slot)
        if self.drafter:
            self.drafter.move(row.slot, slot)
        row.slot = slot

    def __call__(self, rows: list[Sequence], times: StepTimes | None = None) -> None:
        """Advance every row by at least one token; a row fresh from ``admit`` is prefilled and gets its first one."""
        t0 = time.perf_counter()
        drafts = self._draft(rows)
        t1 = time.perf_counter()
        starts = [self.cache.lengths[row.slot] for row in rows]
        pending = [row.tokens_from(start) for row, start in zip(rows, starts, strict=True)]
        nodes = [[*p, *draft.token_ids] for p, draft in zip(pending, drafts, strict=True)]
        pass_input = PassInput.build(
            self.cache, [row.slot for row in rows], starts, [len(n) for n in nodes], self.trunk.device
        )
        states = self.trunk.states(
            self.trunk.embed(pass_input.pad_ids(nodes)),
            pass_input.positions_BN,
            pass_input.allowed_BNS,
            pass_input.key_positions_BS,
            self.cache,
        )
        # Only the root and the drafts are judged; a prompt's other tokens need no logits.
        judged = [(b, len(p) - 1 + k) for b, p in enumerate(pending) for k in range(len(drafts[b].token_ids) + 1)]
        row_index, node_index = torch.tensor(judged, device=self.trunk.device).unbind(1)
        logits_MV = self.trunk.project(states.post_BTD[row_index, node_index])
        verdicts = self._verify(rows, drafts, logits_MV)
        t2 = time.perf_counter()
        for b, (row, draft, verdict) in enumerate(zip(rows, drafts, verdicts, strict=True)):
            num_taken = row.commit(draft.token_ids, verdict)
            num_new = len(pending[b]) + num_taken - 1
            self.cache.commit(row.slot, starts[b] + num_new)
            if self.drafter and row.finish_reason is None:
                side = self.drafter.heads.trunk_side(states)
                self.drafter.observe(row, starts[b], side[b, :num_new])
        if times is not None:
            times.add(t1 - t0, t2 - t1, time.perf_counter() - t2)

    def _draft(self, rows: list[Sequence]) -> list[Draft]:
        if self.drafter is None:
            return [Draft() for _ in rows]
        return self.drafter.draft(rows, [self.drafter.depth_for(row) for row in rows])

    def _verify(self, rows: list[Sequence], drafts: list[Draft], logits_MV: torch.Tensor) -> list[Verdict]:
        argmax_ids = argmax(logits_MV).tolist()
        verdicts, start = [], 0
        for row, draft in zip(rows, drafts, strict=True):
            stop = start + len(draft.token_ids) + 1
            if row.params.greedy:
                verdicts.append(verify_greedy(draft, argmax_ids[start:stop]))
            else:
                verdicts.append(verify_sampled(draft, logits_MV[start:stop], row.params, row.generator))
            start = stop
        return verdicts
