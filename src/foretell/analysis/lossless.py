"""Greedy equality: every depth must give the token ids of depth 0, and a difference is explained or called a bug.

Two passes of different width may round differently, so where the trunk's two best tokens nearly tie (`near_tie`),
either may win. That is the only excuse, and it is checked: both tokens must lie near the best one. An exact engine has
no excuse at all. A batch is checked against the single runs of its rows in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from foretell.analysis.causes import likely_cause
from foretell.analysis.near_tie import near_tie_gap as near_tie_gap
from foretell.analysis.near_tie import next_logits as next_logits
from foretell.analysis.texts import BenchPrompt, first_difference
from foretell.config import SamplingParams
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.decoding.rules import LogitRules
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Completion, Depth


@dataclass(frozen=True)
class Difference:
    """Where a text first leaves the one it should be: depth 0's, or in a ``batch`` of several rows its single run's.

    ``position`` counts output tokens from 0; a token is None past a text's end. ``gap``: best minus second-best logit
    there, projected in fp32, under the request's rules; ``limit``: smaller gaps are excused. ``cause``: a guess.
    """

    prompt: int
    domain: str
    depth: Depth
    position: int
    expected_token: int | None
    got_token: int | None
    expected_text: str
    got_text: str
    gap: float
    limit: float
    verdict: Literal["near tie", "BUG"]
    batch: int = 1
    cause: str = ""


@dataclass
class BatchReport:
    """All prompts through one engine of ``num_rows`` rows, against their single runs at the same depths."""

    num_rows: int
    num_texts: int = 0
    num_accepted_tokens: int = 0
    num_accepted_alone: int = 0
    differences: list[Difference] = field(default_factory=list)


@dataclass
class EqualityReport:
    """``num_texts`` counts (prompt, depth) pairs compared with depth 0; ``batch`` is the second comparison.

    ``plain_texts``: depth 0's, token ids, prompt by prompt.
    """

    depths: list[Depth]
    num_nodes: int = 0
    exact: bool = False
    num_prompts: int = 0
    num_texts: int = 0
    num_tokens: int = 0
    num_accepted_tokens: int = 0
    differences: list[Difference] = field(default_factory=list)
    batch: BatchReport | None = None
    plain_texts: list[list[int]] = field(default_factory=list, repr=False)

    @property
    def passed(self) -> bool:
        """True where every difference is a near tie; exact: where there is none."""
        found = self.differences + (self.batch.differences if self.batch else [])
        return not found if self.exact else all(d.verdict == "near tie" for d in found)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the texts."""
        values = asdict(self)
        del values["plain_texts"]
        return {"passed": self.passed, **values}


def check_greedy_equality(
    model: MTPModel,
    prompts: Sequence[BenchPrompt],
    depths: Sequence[Depth],
    max_tokens: int,
    on_progress: Callable[[int, int], None] | None = None,
    drafter: DrafterConfig | None = None,
    num_nodes: int = 0,
    exact: bool = False,
    batch: int | None = None,
    params: SamplingParams | None = None,
) -> EqualityReport:
    """Decode every prompt at depth 0 and at each of ``depths``. ``on_progress(num_done, num_total)`` counts prompts.

    ``drafter`` and ``exact`` as for Engine, ``num_nodes`` as for its ``generate``. ``batch``: decode all prompts at
    depth 0 and at each depth together too, so many rows at a time. ``params``: rules to decode under (penalties, bias,
    bans, a grammar, ...), greedy.
    """
    report = EqualityReport(list(depths), num_nodes, exact)
    params = replace(params or SamplingParams(), max_tokens=max_tokens)
    # A prompt whose beginning is known is read in a shorter pass, which rounds otherwise: only the depth shall differ.
    engine = Engine(model, drafter=drafter, exact=exact, reuse_prefixes=False)
    singles: dict[Depth, list[Completion]] = {depth: [] for depth in (0, *depths)}
    for index, prompt in enumerate(prompts):
        for depth, done in singles.items():
            done += engine.generate([prompt.token_ids], params, depth, num_nodes=num_nodes if depth else 0)
        plain = singles[0][index].token_ids
        report.plain_texts.append(plain)
        report.num_prompts += 1
        report.num_tokens += len(plain)
        for depth in depths:
            done_alone = singles[depth][index]
            report.num_texts += 1
            report.num_accepted_tokens += done_alone.stats.num_accepted_tokens
            if first_difference(plain, done_alone.token_ids) is not None:
                report.differences.append(
                    explain(model.trunk, prompt, plain, done_alone.token_ids, index, depth, 1, exact, params)
                )
        if on_progress:
            on_progress(index + 1, len(prompts))
    if batch is not None:
        rows = Engine(model, batch, drafter, exact=exact, reuse_prefixes=False)
        report.batch = _check_batch(rows, prompts, singles, params, num_nodes)
    return report


def _check_batch(
    engine: Engine,
    prompts: Sequence[BenchPrompt],
    singles: dict[Depth, list[Completion]],
    params: SamplingParams,
    num_nodes: int,
) -> BatchReport:
    """All prompts at once, at every depth of ``singles``, against these."""
    report = BatchReport(engine.max_batch)
    for depth, alone in singles.items():
        done = engine.generate([p.token_ids for p in prompts], params, depth, num_nodes=num_nodes if depth else 0)
        for index, (prompt, expected, got) in enumerate(zip(prompts, alone, done, strict=True)):
            report.num_texts += 1
            report.num_accepted_alone += expected.stats.num_accepted_tokens
            report.num_accepted_tokens += got.stats.num_accepted_tokens
            if first_difference(expected.token_ids, got.token_ids) is not None:
                report.differences.append(
                    explain(
                        engine.model.trunk,
                        prompt,
                        expected.token_ids,
                        got.token_ids,
                        index,
                        depth,
                        engine.max_batch,
                        engine.exact,
                        params,
                    )
                )
    return report


def explain(
    trunk: Trunk,
    prompt: BenchPrompt,
    expected: list[int],
    got: list[int],
    prompt_index: int,
    depth: Depth,
    batch: int = 1,
    exact: bool = False,
    params: SamplingParams | None = None,
) -> Difference:
    """Judge the first difference between the output that was right and another's; the two must differ.

    ``exact``: nothing is excused. ``params``: the rules that both were decoded under.
    """
    position = first_difference(expected, got)
    assert position is not None
    logits_V = next_logits(trunk, prompt.token_ids + expected[:position])
    if params is not None:
        rules = LogitRules(params, prompt.token_ids, trunk.vocab_size, trunk.tokenizer, trunk.eos_token_ids)
        logits_V = rules.apply(logits_V.unsqueeze(0), expected[:position], [[]])[0]
    best, second = logits_V.topk(2).values.tolist()
    limit = 0.0 if exact else near_tie_gap(trunk.dtype, best)
    tokens = [ids[position] if position < len(ids) else None for ids in (expected, got)]
    # Both tokens must be near the top: a third one is not excused by a tie between two others.
    excused = all(t is not None and best - logits_V[t].item() < limit for t in tokens)
    return Difference(
        prompt=prompt_index,
        domain=prompt.domain,
        depth=depth,
        position=position,
        expected_token=tokens[0],
        got_token=tokens[1],
        expected_text=_text(trunk, tokens[0]),
        got_text=_text(trunk, tokens[1]),
        gap=best - second,
        limit=limit,
        verdict="near tie" if excused else "BUG",
        batch=batch,
        cause=likely_cause(trunk, logits_V, tokens[0], tokens[1], best - second, limit, batch, excused),
    )


def _text(trunk: Trunk, token_id: int | None) -> str:
    if token_id is None:
        return "(end)"
    return str(token_id) if trunk.tokenizer is None else trunk.tokenizer.decode([token_id])
