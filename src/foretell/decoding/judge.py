"""Judge: logits of roots and drafted nodes to a verdict a row, through the row's rules and filters."""

from __future__ import annotations

from collections.abc import Sequence as Items
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

_NOT_FINITE = "the model's logits are not finite, so no token can be chosen; try --dtype float32"


def refuse_not_finite(works: Items[Work], states: Items[torch.Tensor]) -> None:
    """End rows whose states (n, D) are no numbers, before what they wrote into the cache gets to others."""
    finite = torch.stack([states_ND.amax() for states_ND in states]).isfinite().tolist()
    for work, is_finite in zip(works, finite, strict=True):
        if not is_finite:
            work.row.fail(ForetellError(_NOT_FINITE))


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
    greedy = [b for b, row in enumerate(rows) if row.params.greedy]
    best = argmax(torch.cat([ruled[b].logits_NV for b in greedy])).tolist() if greedy else []
    probs = _sampled_probs(rows, [each.logits_NV for each in ruled])
    verdicts, start = [], 0
    for b, (row, draft) in enumerate(zip(rows, drafts, strict=True)):
        if row.params.greedy:
            verdict = verify_greedy(draft, best[start : start + 1 + len(draft)])
            start += 1 + len(draft)
        elif row.params.typical_acceptance is not None:
            verdict = verify_typical(draft, probs[b], row.params.typical_acceptance, row.generator)
        else:
            verdict = verify_sampled(draft, probs[b], row.generator)
        row.node_errors = ruled[b].errors
        verdicts.append(verdict)
    return verdicts


class _Ruled(NamedTuple):
    """The logits (N, V) of root and drafted nodes that decide, and what went wrong at which node (-1: the root).

    A node that went wrong has logits that mean nothing. They matter only where the text needs them: plain decoding
    would then fail too (see ``Sequence.commit``). Dropping the draft instead would change the law of what is sampled,
    because it depends on what was drafted.
    """

    logits_NV: torch.Tensor
    errors: dict[int, BaseException]


def _ruled(row: Sequence, draft: Draft, logits_NV: torch.Tensor, finite_N: list[bool]) -> _Ruled:
    """What the row's rules (penalties, bans, grammar) make of the logits after every drafted path."""
    prefixes = [draft.prefix(node) for node in range(-1, len(draft))] if row.rules.active else []
    if all(finite_N):
        try:
            return _Ruled(row.rules.apply(logits_NV, row.token_ids, prefixes) if prefixes else logits_NV, {})
        except (Exception, SystemExit):  # the request's own code may raise anything
            pass
    return _ruled_one_by_one(row, prefixes, logits_NV.float(), finite_N)


def _ruled_one_by_one(
    row: Sequence, prefixes: list[list[int]], logits_NV: torch.Tensor, finite_N: list[bool]
) -> _Ruled:
    ruled = torch.zeros_like(logits_NV)
    errors: dict[int, BaseException] = {}
    for n, is_finite in enumerate(finite_N):
        own_1V = logits_NV[n : n + 1]
        try:
            if not is_finite:
                raise ForetellError(_NOT_FINITE)
            ruled[n] = row.rules.apply(own_1V, row.token_ids, prefixes[n : n + 1])[0] if prefixes else own_1V[0]
        except (Exception, SystemExit) as error:
            errors[n - 1] = error
    return _Ruled(ruled, errors)


def _sampled_probs(rows: list[Sequence], logits: list[torch.Tensor]) -> dict[int, torch.Tensor]:
    """Row index -> (N, V) probabilities; rows sampled alike share one computation."""
    alike: dict[tuple[float, ...], list[int]] = {}
    for b, row in enumerate(rows):
        params = row.params
        if not params.greedy:
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
    del row.logprobs[len(row.token_ids) :]  # of a step that was not finished
    row.logprobs += logprobs_of(logits_NV[nodes], token_ids, row.params.logprobs)
