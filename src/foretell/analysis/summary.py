"""From single measurements to the lines of a bench file: medians, spreads, paired speed-ups, predicted limits."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from foretell.analysis.systems import Sample
from foretell.types import AcceptanceStats

ALL = "all"
"""Domain name of the summary over every prompt."""


@dataclass(frozen=True)
class Record:
    """One sample with its place in the run."""

    system: str
    depth: int
    prompt: int
    repeat: int
    domain: str
    sample: Sample

    @property
    def is_plain(self) -> bool:
        """True for our own depth 0, the base of every speed-up."""
        return self.system == "foretell" and self.depth == 0


@dataclass(frozen=True)
class Spread:
    """Median, and 10th and 90th percentile."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """None where there is no value."""
        found = sorted(v for v in values if v is not None)
        if not found:
            return None
        return cls(statistics.median(found), _percentile(found, 0.1), _percentile(found, 0.9))


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Linear between the two nearest ranks."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


@dataclass(frozen=True)
class RunSummary:
    """One system at one depth on one domain. ``speedup`` is against our depth 0, paired by prompt and repeat.

    ``round_cost``: mean seconds of a decode step over depth 0's. ``predicted_speedup`` = mean acceptance length /
    round_cost: what this drafter gains when every step drafts fully. ``extra_memory_bytes``: the most that it held
    beyond the trunk, weights, keys and values.
    """

    system: str
    drafter: str | None
    depth: int
    batch: int
    domain: str
    dtype: str
    num_prompts: int
    num_output_tokens: int
    decode_tokens_per_s: Spread | None
    speedup: Spread | None
    speedup_over_reference: Spread | None
    mean_acceptance_length: float | None
    acceptance_by_depth: list[float]
    time_share: dict[str, float] | None
    step_ms: float | None
    round_cost: float | None
    predicted_speedup: float | None
    extra_memory_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def summarise(records: Sequence[Record], dtype: str, drafter: str | None = "heads") -> list[RunSummary]:
    """One summary a system, depth and domain, "all" before the single domains; ``drafter`` names who drafted."""
    domains = [ALL, *dict.fromkeys(r.domain for r in records)]
    systems = sorted({(r.system, r.depth) for r in records})
    return [
        _summary([r for r in records if domain in (ALL, r.domain)], system, depth, domain, dtype, drafter)
        for domain in domains
        for system, depth in systems
    ]


def best_run(runs: Sequence[RunSummary]) -> RunSummary:
    """Our run with the highest median speed-up over all prompts; the shallower one on a tie."""
    ours = [run for run in runs if run.system == "foretell" and run.domain == ALL]
    return max(ours, key=lambda run: (run.speedup.median if run.speedup else 1.0, -run.depth))


def _summary(
    records: Sequence[Record], system: str, depth: int, domain: str, dtype: str, drafter: str | None
) -> RunSummary:
    own = [r for r in records if (r.system, r.depth) == (system, depth)]
    plain = [r for r in records if r.is_plain]
    stats = AcceptanceStats()
    for record in own:
        stats.add(record.sample.stats)
    step_s, plain_step_s = _mean_step_s(own), _mean_step_s(plain)
    round_cost = step_s / plain_step_s if step_s and plain_step_s else None
    length = stats.mean_acceptance_length
    drafting = system == "foretell" and depth > 0
    return RunSummary(
        system=system,
        drafter=drafter if drafting else None,
        depth=depth,
        batch=1,
        domain=domain,
        dtype=dtype,
        num_prompts=len({r.prompt for r in own}),
        num_output_tokens=sum(len(r.sample.token_ids) for r in own),
        decode_tokens_per_s=Spread.of(r.sample.decode_tokens_per_s for r in own),
        speedup=Spread.of(_ratios(own, plain)),
        speedup_over_reference=Spread.of(_ratios(own, [r for r in records if r.system == "transformers"])),
        mean_acceptance_length=length,
        acceptance_by_depth=stats.acceptance_by_depth,
        time_share=_time_share(own),
        step_ms=step_s and 1000 * step_s,
        round_cost=round_cost,
        predicted_speedup=length / round_cost if length and round_cost else None,
        extra_memory_bytes=max((r.sample.drafter_num_bytes for r in own), default=0),
    )


def _ratios(own: Sequence[Record], base: Sequence[Record]) -> list[float]:
    base_rates = {(r.prompt, r.repeat): r.sample.decode_tokens_per_s for r in base}
    ratios = []
    for record in own:
        rate, base_rate = record.sample.decode_tokens_per_s, base_rates.get((record.prompt, record.repeat))
        if rate and base_rate:
            ratios.append(rate / base_rate)
    return ratios


def _mean_step_s(records: Sequence[Record]) -> float | None:
    num_steps = sum(r.sample.times.num_steps for r in records)
    return sum(r.sample.decode_s for r in records) / num_steps if num_steps else None


def _time_share(records: Sequence[Record]) -> dict[str, float] | None:
    seconds = {
        "draft": sum(r.sample.times.draft_s for r in records),
        "verify": sum(r.sample.times.verify_s for r in records),
        "other": sum(r.sample.times.other_s for r in records),
    }
    total = sum(seconds.values())
    return {part: s / total for part, s in seconds.items()} if total else None
