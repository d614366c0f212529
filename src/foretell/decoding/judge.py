"""Judge: logits of roots and drafted nodes to a verdict a row, through the row's rules and filters."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import replace
from typing import NamedTuple

import torch

from foretell.decoding.logprobs import logprobs_of
from foretell.decoding.passes import PassInput
from foretell.decoding.ranks import share_verdicts
from foretell.decoding.sampling import filtered_probs
from foretell.decoding.scheduler import Work
from foretell.decoding.sequence import Sequence
from foretell.decoding.typical import verify_typical
from foretell.decoding.verify import verify_greedy, verify_sampled
from foretell.errors import ForetellError
from foretell.models.decoder import States
from foretell.models.greedy import argmax
from foretell.models.trunk import Trunk
from foretell.types import Draft, Verdict


def judge(
    trunk: Trunk,
    works: Items[Work],
    pending: Items[Items[int]],
    drafts: Items[Draft],
    pass_input: PassInput,
    states: States,
    width: int,
) -> list[Verdict | None]:
    """One verdict a row, None where only a part of its prompt was read.

    Only the root and the drafts are projected; a prompt's other tokens need no logits, unless they are asked for.
    """
    nodes = [(b, n) for b, work in enumerate(works) for n in _judged(work, len(pending[b]), len(drafts[b]))]
    if not nodes:
        return [None] * len(works)
    logits_MV = trunk.project(pass_input.pick(states.post_BTD, nodes + nodes[:1] * (width - len(nodes))))[: len(nodes)]
    counts = [len(_judged(work, len(p), len(d))) for work, p, d in zip(works, pending, drafts, strict=True)]
    by_row = list(logits_MV.split(counts))
    for b, work in enumerate(works):
        if work.row.params.prompt_logprobs is not None and not work.row.token_ids:
            by_row[b] = _take_prompt(work, pending[b], by_row[b])
    asked = [b for b, work in enumerate(works) if work.is_judged]
    verdicts: list[Verdict | None] = [None] * len(works)
    if not asked:
        return verdicts
    found = _verdicts([works[b].row for b in asked], [drafts[b] for b in asked], [by_row[b] for b in asked])
    found = share_verdicts(trunk.tp_group, found)
    for b, verdict in zip(asked, found, strict=True):
        verdicts[b] = verdict
        _note_logprobs(works[b].row, drafts[b], verdict, by_row[b])
    return verdicts


def _judged(work: Work, num_pending: int, num_drafted: int) -> range:
    """Nodes of a row that need logits: the root and what was drafted, or the whole prompt."""
    if work.row.params.prompt_logprobs is not None and not work.row.token_ids:
        return range(num_pending)
    return range(num_pending - 1, num_pending + num_drafted) if work.is_judged else range(0)


def _take_prompt(work: Work, pending: Items[int], logits_NV: torch.Tensor) -> torch.Tensor:
    """Keep the prompt's log-probabilities; returns the root's logits (1, V)."""
    row = work.row
    following = row.tokens_from(row.num_cached + 1, work.stop + 1)
    top = row.params.prompt_logprobs or 0
    del row.prompt_logprobs[row.num_cached :]  # read before, and given up when memory was short
    row.prompt_logprobs += logprobs_of(logits_NV[: len(following)], following, top)
    return logits_NV[-1:]


def _verdicts(rows: list[Sequence], drafts: list[Draft], logits: list[torch.Tensor]) -> list[Verdict]:
    finite = torch.cat([logits_NV.amax(-1) for logits_NV in logits]).isfinite().tolist()  # asked once, for all rows
    ruled, start = [], 0
    for row, draft, logits_NV in zip(rows, drafts, logits, strict=True):
        ruled.append(_ruled(row, draft, logits_NV, finite[start : start + len(logits_NV)]))
        start += len(logits_NV)
    greedy = [b for b, row in enumerate(rows) if row.params.greedy and row.error is None]
    best = argmax(torch.cat([ruled[b].logits_NV for b in greedy])).tolist() if greedy else []
    probs = _sampled_probs(rows, [each.logits_NV for each in ruled])
    verdicts, start = [], 0
    for b, (row, (draft, logits_NV)) in enumerate(zip(rows, ruled, strict=True)):
        if row.error is not None:
            verdict = Verdict([], 0, False)
        elif row.params.greedy:
            verdict = verify_greedy(draft, best[start : start + len(logits_NV)])
            start += len(logits_NV)
        elif row.params.typical_acceptance is not None:
            verdict = verify_typical(draft, probs[b], row.params.typical_acceptance, row.generator)
        else:
            verdict = verify_sampled(draft, probs[b], row.generator)
        verdicts.append(verdict if draft is drafts[b] else replace(verdict, all_accepted=False))
    return verdicts


class _Ruled(NamedTuple):
    """What of a draft is judged, and the logits (N, V) of the root and its nodes that decide."""

    draft: Draft
    logits_NV: torch.Tensor


def _ruled(row: Sequence, draft: Draft, logits_NV: torch.Tensor, finite_N: list[bool]) -> _Ruled:
    """The draft and what the row's rules (penalties, bans, grammar) make of the logits after every drafted path.

    Where that fails the root alone is judged: plain decoding might never come to the path it failed on. Where it fails
    for the root too, this row ends, and no other.
    """
    try:
        if not all(finite_N):
            raise ForetellError("the model's logits are not finite, so no token can be chosen; try --dtype float32")
        return _Ruled(draft, _apply_rules(row, draft, logits_NV))
    except (Exception, SystemExit) as error:  # the request's own code may raise anything
        if len(draft):
            return _ruled(row, Draft(), logits_NV[:1], finite_N[:1])
        row.fail(error)
        return _Ruled(draft, logits_NV)


def _apply_rules(row: Sequence, draft: Draft, logits_NV: torch.Tensor) -> torch.Tensor:
    if not row.rules.active:
        return logits_NV
    return row.rules.apply(logits_NV, row.token_ids, [draft.prefix(node) for node in range(-1, len(draft))])


def _sampled_probs(rows: list[Sequence], logits: list[torch.Tensor]) -> dict[int, torch.Tensor]:
    """Row index -> (N, V) probabilities; rows sampled alike share one computation."""
    alike: dict[tuple[float, ...], list[int]] = {}
    for b, row in enumerate(rows):
        params = row.params
        if not params.greedy and row.error is None:
            alike.setdefault((params.temperature, params.top_k, params.top_p, params.min_p), []).append(b)
    probs: dict[int, torch.Tensor] = {}
    for members in alike.values():
        together = filtered_probs(torch.cat([logits[b] for b in members]), rows[members[0]].params)
        probs.update(zip(members, together.split([len(logits[b]) for b in members]), strict=True))
    return probs


def _note_logprobs(row: Sequence, draft: Draft, verdict: Verdict, logits_NV: torch.Tensor) -> None:
    """Raw log-probabilities of the tokens this step brings, each after the path before it."""
    if row.params.logprobs is None:
        return
    nodes = torch.tensor([0, *[node + 1 for node in verdict.path]], device=logits_NV.device)
    token_ids = [*[draft.token_ids[node] for node in verdict.path], verdict.next_token]
    row.logprobs += logprobs_of(logits_NV[nodes], token_ids, row.params.logprobs)
