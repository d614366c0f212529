"""Compare: every contender against depth 0 and each other, in turns on the same prompts, at one batch size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from foretell.analysis.batch_systems import EngineBatch
from foretell.analysis.bench import make_report
from foretell.analysis.bench_report import BenchReport
from foretell.analysis.contenders import PLAIN
from foretell.analysis.entries import Entry
from foretell.analysis.records import Record, turns
from foretell.analysis.step_costs import StepCosts
from foretell.analysis.stopped import kept, of_turns, whole_turns
from foretell.analysis.summary import ALL, RunSummary, summarise
from foretell.analysis.systems import EngineSystem
from foretell.analysis.texts import BenchPrompt, PromptGroup, groups_of
from foretell.models.trunk import Trunk
from foretell.planning.averages import percentile

_WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class TokenTime:
    """Milliseconds a token of each request's own text: median, and 95th percentile."""

    median: float
    p95: float

    @classmethod
    def of(cls, rates: Sequence[float]) -> TokenTime | None:
        """From tokens a second of each request; None where there is none."""
        found = sorted(1000 / rate for rate in rates if rate)
        return cls(percentile(found, 0.5), percentile(found, 0.95)) if found else None


@dataclass(frozen=True)
class ComparedRun:
    """A run of a bench file, and who ran it. ``draft_overhead``: seconds of drafting over those of the rest of a step.

    ``speedup`` in ``run`` is over depth 0, paired by prompt, or group of prompts, and repeat.
    """

    name: str
    run: RunSummary
    token_ms: TokenTime | None
    draft_overhead: float | None

    def as_dict(self) -> dict[str, Any]:
        """A bench file's run with these fields beside it."""
        return {
            **self.run.as_dict(),
            "name": self.name,
            "token_ms": self.token_ms and asdict(self.token_ms),
            "draft_overhead": self.draft_overhead,
        }


@dataclass
class Comparison:
    """What one batch size gave: plain decoding first, then every entry, "all" domains before single ones.

    ``reports``: a bench report of each entry against depth 0; texts that differ from depth 0's are explained there.
    ``records``: every single measurement, of depth 0 under the name "plain". ``num_planned``: of a run that was
    stopped, the measurements that it was to have; summaries and reports are then of whole turns alone (see `stopped`).
    """

    batch: int
    runs: list[ComparedRun]
    reports: list[tuple[Entry, BenchReport]] = field(repr=False)
    records: list[tuple[Entry, Record[Any]]] = field(repr=False)
    num_planned: int | None = None

    @property
    def passed(self) -> bool:
        """True where every text is depth 0's, or parts from it at a near tie."""
        return all(report.passed for _, report in self.reports)

    def outputs(self) -> list[list[int]]:
        """Depth 0's output for every prompt, in its first repeat."""
        first = [r for entry, r in self.records if entry.contender is None and r.repeat == 0]
        return [text for record in first for text in record.sample.texts]

    def best(self, name: str, domain: str = ALL) -> ComparedRun | None:
        """The contender's run with the highest median speed-up; None where it was not measured."""
        own = [r for r in self.runs if r.name == name and r.run.domain == domain and r.run.speedup]
        return max(own, key=lambda r: r.run.speedup.median if r.run.speedup else 0.0, default=None)


def run_comparison(
    trunk: Trunk,
    entries: Sequence[Entry],
    prompts: Sequence[BenchPrompt],
    batch: int,
    max_tokens: int,
    repeats: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
    costs: dict[str, StepCosts] | None = None,
    on_stop: Callable[[Comparison], None] | None = None,
) -> Comparison:
    """Decode every prompt with depth 0 and every entry, in an order that rotates. Greedy.

    ``costs`` collects what the steps of each system cost, by its name: a draft costs what its drafter costs, and a pass
    has the work of keeping that drafter's states in it. ``on_stop`` gets what was measured where an exception, Ctrl-C
    too, ends the run (see `stopped`).

    One request at a time is timed without its prompt, batches in groups with them, as ``run_bench`` and
    ``run_batch_bench`` do; what they say of warm-up, prefixes and domains holds here too.
    """
    groups = (
        groups_of(prompts, batch) if batch > 1 else [PromptGroup(p.domain, [i], [p]) for i, p in enumerate(prompts)]
    )
    every = [Entry(None), *entries]
    of_name: dict[str, StepCosts] = {} if costs is None else costs
    systems = [(entry, entry.system(trunk, batch, of_name.setdefault(entry.name, StepCosts()))) for entry in every]

    def decode(system: EngineSystem | EngineBatch, group: PromptGroup, most: int) -> Any:
        if isinstance(system, EngineBatch):
            return system.run(group, most)
        return system.run(group.prompts[0].token_ids, most, group.domain)

    for entry, system in systems:
        with of_name[entry.name].paused():
            decode(system, groups[0], max_tokens if entry.depth == "auto" else min(max_tokens, _WARM_UP_TOKENS))
    taken: list[tuple[Entry, Record[Any]]] = []
    num_total = len(groups) * repeats * len(systems)

    def comparison(measured: set[tuple[int, int]]) -> Comparison:
        records = {entry: of_turns([r for owner, r in taken if owner is entry], measured) for entry in every}
        plain = records[every[0]]
        reports = [(e, _report(e, prompts, [*plain, *records[e]], batch, groups)) for e in entries]
        dtype = trunk.dtype_name
        runs = [_compared(PLAIN, run, plain) for run in summarise(plain, dtype, None, batch)] if plain else []
        for entry, report in reports:
            runs += [_compared(entry.name, run, records[entry]) for run in report.runs if run.depth != 0]
        return Comparison(batch, runs, reports, taken)

    def whole() -> set[tuple[int, int]]:
        return whole_turns([record for _, record in taken], len(systems))

    with kept(on_stop, lambda summaries: replace(comparison(whole() if summaries else set()), num_planned=num_total)):
        for repeat, index, (entry, system) in turns(systems, len(groups), repeats):
            sample = decode(system, groups[index], max_tokens)
            setting = system.setting
            domain, num_nodes = groups[index].domain, setting.num_nodes
            taken.append((entry, Record(setting.system, setting.depth, index, repeat, domain, sample, num_nodes)))
            if on_progress:
                on_progress(len(taken), num_total)
        return comparison(whole())


def _report(
    entry: Entry,
    prompts: Sequence[BenchPrompt],
    records: Sequence[Record[Any]],
    batch: int,
    groups: Sequence[PromptGroup],
) -> BenchReport:
    assert entry.contender is not None
    model, drafter = entry.contender.model, entry.contender.drafter
    return make_report(model, prompts, records, drafter, batch, None, [group.indices for group in groups])


def _compared(name: str, run: RunSummary, records: Sequence[Record[Any]]) -> ComparedRun:
    samples = [record.sample for record in records if run.domain in (ALL, record.domain)]
    rates = [rate for sample in samples for rate in sample.request_tokens_per_s]
    share = run.time_share
    rest = share["verify"] + share["other"] if share else 0.0
    return ComparedRun(
        name,
        replace(
            run, speedup_over_chain=None, speedup_over_best_fixed=None
        ),  # what they are over is not in these records
        TokenTime.of(rates),
        share["draft"] / rest if share and rest else None,
    )
