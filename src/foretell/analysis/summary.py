"""From single measurements to the lines of a bench file: medians, spreads, paired speed-ups, predicted limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from foretell.analysis.records import Record, Setting, Spread, ratios
from foretell.analysis.texts import MIXED
from foretell.types import AcceptanceStats, Depth

ALL = "all"
"""Domain name of the summary over every prompt."""

Mode = Literal["decode", "end-to-end"]
"""What was timed: one prompt at a time from its first token to its last, or groups of prompts from start to end."""


@dataclass(frozen=True)
class RunSummary:
    """One system at one depth on one domain. ``speedup`` is against our depth 0, paired by prompt or group, and repeat.

    ``decode_tokens_per_s``: of all requests together, in "end-to-end" mode with the reading of prompts in it;
    ``request_tokens_per_s``: of each. ``speedup_over_reference``: over transformers' generate,
    ``speedup_over_generate_batch`` over its generate_batch, ``speedup_over_chain``, for trees, over the chain that
    drafts as many nodes, or as many as it can, and ``speedup_over_best_fixed``, for "auto", over the chain, or the
    tree where it may draft trees, with the highest ``speedup`` on this domain. ``time_share``: parts of the steps'
    seconds; "prefill", steps that read prompts too, is a part in "end-to-end" mode.
    ``round_cost``: mean seconds of a decode step over depth 0's. ``predicted_speedup`` = mean acceptance length /
    round_cost: what this drafter gains when every step drafts fully; none for "auto", which often does not.
    ``tokens_per_pass``: of all passes behind a prompt's, also those in which nothing was drafted, unlike
    ``mean_acceptance_length``. ``share_drafted``: those of them with a draft.
    ``extra_memory_bytes``: the most that it held beyond the trunk, weights, keys and values.
    """

    system: str
    drafter: str | None
    depth: Depth
    num_nodes: int
    batch: int
    mode: Mode
    domain: str
    dtype: str
    num_prompts: int
    num_output_tokens: int
    decode_tokens_per_s: Spread | None
    request_tokens_per_s: Spread | None
    speedup: Spread | None
    speedup_over_reference: Spread | None
    speedup_over_generate_batch: Spread | None
    speedup_over_chain: Spread | None
    speedup_over_best_fixed: Spread | None
    mean_acceptance_length: float | None
    acceptance_by_depth: list[float]
    tokens_per_pass: float | None
    share_drafted: float | None
    time_share: dict[str, float] | None
    step_ms: float | None
    round_cost: float | None
    predicted_speedup: float | None
    extra_memory_bytes: int

    @property
    def setting(self) -> Setting:
        """Who was measured."""
        return Setting(self.system, self.depth, self.num_nodes)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def summarise(
    records: Sequence[Record[Any]], dtype: str, drafter: str | None = "heads", batch: int = 1
) -> list[RunSummary]:
    """One summary a system, depth and domain, "all" before the single domains; ``drafter`` names who drafted."""
    domains = [ALL, *[domain for domain in dict.fromkeys(r.domain for r in records) if domain != MIXED]]
    settings = sorted({r.setting for r in records}, key=lambda setting: setting.order)
    runs: list[RunSummary] = []
    for domain in domains:
        of_domain = [r for r in records if domain in (ALL, r.domain)]
        made = [_summary(of_domain, setting, domain, dtype, drafter, batch) for setting in settings]
        runs += [_beside_best_fixed(run, made, of_domain) if run.depth == "auto" else run for run in made]
    return runs


def best_run(runs: Sequence[RunSummary], domain: str = ALL, num_nodes: int = 0) -> RunSummary:
    """Our chain of a fixed depth with the highest median speed-up on this domain; the shallower one on a tie.

    ``num_nodes``: trees of so many nodes count too.
    """
    fixed = [run for run in runs if run.domain == domain and run.setting.is_fixed and run.num_nodes in (0, num_nodes)]
    return max(fixed, key=lambda run: (run.speedup.median if run.speedup else 1.0, -int(run.depth)))


def _beside_best_fixed(run: RunSummary, runs: Sequence[RunSummary], records: Sequence[Record[Any]]) -> RunSummary:
    best = best_run(runs, run.domain, run.num_nodes).setting
    own, base = ([r for r in records if r.setting == setting] for setting in (run.setting, best))
    return replace(run, speedup_over_best_fixed=Spread.of(ratios(own, base)))


def _summary(
    records: Sequence[Record[Any]], setting: Setting, domain: str, dtype: str, drafter: str | None, batch: int
) -> RunSummary:
    own = [r for r in records if r.setting == setting]
    plain = [r for r in records if r.is_plain]
    stats = AcceptanceStats.total(record.sample.stats for record in own)
    step_s, plain_step_s = _mean_step_s(own), _mean_step_s(plain)
    round_cost = step_s / plain_step_s if step_s and plain_step_s else None
    length = stats.mean_acceptance_length
    drafting = setting.system == "foretell" and setting.depth != 0
    num_tokens = sum(len(text) for r in own for text in r.sample.texts)
    num_first = sum(len(r.sample.texts) for r in own)  # a text's first token comes with its prompt's pass
    num_passes = sum(r.sample.num_passes for r in own) - num_first
    chain = _chain_beside(setting, records)
    return RunSummary(
        system=setting.system,
        drafter=drafter if drafting else None,
        depth=setting.depth,
        num_nodes=setting.num_nodes,
        batch=batch,
        mode="decode" if batch == 1 else "end-to-end",
        domain=domain,
        dtype=dtype,
        num_prompts=sum(len(r.sample.texts) for r in {r.prompt: r for r in own}.values()),
        num_output_tokens=num_tokens,
        decode_tokens_per_s=Spread.of(r.sample.decode_tokens_per_s for r in own),
        request_tokens_per_s=Spread.of(rate for r in own for rate in r.sample.request_tokens_per_s),
        speedup=Spread.of(ratios(own, plain)),
        speedup_over_reference=_over("transformers", own, records),
        speedup_over_generate_batch=_over("transformers generate_batch", own, records),
        speedup_over_chain=Spread.of(ratios(own, [r for r in records if r.setting == chain])) if chain else None,
        speedup_over_best_fixed=None,
        mean_acceptance_length=length,
        acceptance_by_depth=stats.acceptance_by_depth,
        tokens_per_pass=(num_tokens - num_first) / num_passes if num_passes > 0 else None,
        share_drafted=stats.num_drafts / num_passes if num_passes > 0 else None,
        time_share=_time_share(own, batch),
        step_ms=step_s and 1000 * step_s,
        round_cost=round_cost,
        predicted_speedup=length / round_cost if length and round_cost and setting.depth != "auto" else None,
        extra_memory_bytes=max((r.sample.drafter_num_bytes for r in own), default=0),
    )


def _chain_beside(setting: Setting, records: Sequence[Record[Any]]) -> Setting | None:
    """For a tree: the deepest chain that was measured and has no more nodes."""
    if not setting.num_nodes or setting.depth == "auto":
        return None
    chains = {r.setting for r in records if r.setting.is_fixed_chain and int(r.depth) <= setting.num_nodes}
    return max(chains, key=lambda chain: int(chain.depth), default=None)


def _over(system: str, own: Sequence[Record[Any]], records: Sequence[Record[Any]]) -> Spread | None:
    return Spread.of(ratios(own, [r for r in records if r.system == system]))


def _mean_step_s(records: Sequence[Record[Any]]) -> float | None:
    num_steps = sum(r.sample.times.num_steps for r in records)
    return sum(r.sample.times.total_s for r in records) / num_steps if num_steps else None


def _time_share(records: Sequence[Record[Any]], batch: int) -> dict[str, float] | None:
    seconds = {
        "draft": sum(r.sample.times.draft_s for r in records),
        "verify": sum(r.sample.times.verify_s for r in records),
        "other": sum(r.sample.times.other_s for r in records),
    }
    if batch > 1:
        seconds["prefill"] = sum(r.sample.prefill_s for r in records)
    total = sum(seconds.values())
    return {part: s / total for part, s in seconds.items()} if total else None
