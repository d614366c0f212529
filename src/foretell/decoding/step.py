"""One decode step for a batch of rows: draft, one trunk pass, verify, commit or rewind. Depth 0 is plain decoding."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch

from foretell.decoding.cache import KVCache
from foretell.decoding.drafter import Drafter
from foretell.decoding.passes import PassInput
from foretell.decoding.sampling import filtered_probs
from foretell.decoding.sequence import Sequence
from foretell.decoding.verify import verify_greedy, verify_sampled
from foretell.models.decoder import States
from foretell.models.greedy import argmax
from foretell.models.packed import smallest_pass
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
    """Owns the trunk's cache and the drafter; rows name their slot in both.

    With packed 16-bit weights a single row has bit for bit the states and logits of plain decoding, whatever is drafted
    (up to 31 tokens): keys come in whole blocks (KVCache), no pass has fewer nodes than ``smallest_pass``, and no
    projection fewer rows, because kernels for one row may round otherwise than those for several.
    """

    def __init__(self, trunk: Trunk, drafter: Drafter | None, num_slots: int) -> None:
        self.trunk = trunk
        self.drafter = drafter
        self.cache = KVCache(num_slots, trunk.max_positions)
        self._width = smallest_pass(trunk.output_head) if num_slots == 1 else 1

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
            self.cache, [row.slot for row in rows], starts, [len(n) for n in nodes], self.trunk.device, self._width
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
        judged += judged[:1] * (self._width - len(judged))
        row_index, node_index = torch.tensor(judged, device=self.trunk.device).unbind(1)
        logits_MV = self.trunk.project(states.post_BTD[row_index, node_index])
        verdicts = self._verify(rows, drafts, logits_MV)
        t2 = time.perf_counter()
        for b, (row, draft, verdict) in enumerate(zip(rows, drafts, verdicts, strict=True)):
            num_taken = row.commit(draft.token_ids, verdict)
            num_new = len(pending[b]) + num_taken - 1
            self.cache.commit(row.slot, starts[b] + num_new)
            if self.drafter and row.finish_reason is None:
                self.drafter.observe(row, starts[b], _states_of(states, b, num_new))
        if times is not None:
            times.add(t1 - t0, t2 - t1, time.perf_counter() - t2)

    def _draft(self, rows: list[Sequence]) -> list[Draft]:
        if self.drafter is None:
            return [Draft() for _ in rows]
        return self.drafter.draft(rows, [self.drafter.depth_for(row) for row in rows])

    def _verify(self, rows: list[Sequence], drafts: list[Draft], logits_MV: torch.Tensor) -> list[Verdict]:
        argmax_ids = argmax(logits_MV).tolist()
        stops = list(accumulate(len(draft.token_ids) + 1 for draft in drafts))
        judged = [range(start, stop) for start, stop in pairwise([0, *stops])]
        probs = _sampled_probs(rows, judged, logits_MV)
        return [
            verify_greedy(draft, argmax_ids[span.start : span.stop])
            if row.params.greedy
            else verify_sampled(draft, probs[b], row.generator)
            for b, (row, draft, span) in enumerate(zip(rows, drafts, judged, strict=True))
        ]


def _states_of(states: States, b: int, count: int) -> States:
    """The first ``count`` states of row b, (n, D) each."""
    below_BTD = states.below_BTD
    return States(
        states.pre_BTD[b, :count], states.post_BTD[b, :count], None if below_BTD is None else below_BTD[b, :count]
    )


def _sampled_probs(rows: list[Sequence], judged: list[range], logits_MV: torch.Tensor) -> dict[int, torch.Tensor]:
    """Row index -> (K, V) probabilities at its ``judged`` rows of logits; rows sampled alike share one computation."""
    alike: dict[tuple[float, ...], list[int]] = {}
    for b, row in enumerate(rows):
        params = row.params
        if not params.greedy:
            alike.setdefault((params.temperature, params.top_k, params.top_p, params.min_p), []).append(b)
    probs: dict[int, torch.Tensor] = {}
    for members in alike.values():
        chosen = [m for b in members for m in judged[b]]
        together = filtered_probs(logits_MV[chosen], rows[members[0]].params)
        probs.update(zip(members, together.split([len(judged[b]) for b in members]), strict=True))
    return probs
