"""Sections: speed-up and tokens/s, and acceptance, by batch size, domain and setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from foretell.reporting.figure_shares import by_depth
from foretell.reporting.figure_speedup import by_batch, by_domain, limits
from foretell.reporting.grouping import together, unlike
from foretell.reporting.labels import number, rate, shares, spread
from foretell.reporting.lead import measured
from foretell.reporting.page import Block, Section, Table, slug
from foretell.reporting.results import Bench
from foretell.reporting.runs import ALL, Run

SPEEDUP = (
    "Speed-up: median of the ratios to plain decoding (depth 0) on the same prompt or group in the same repeat; in "
    "brackets the 10th and 90th percentile. Without brackets there was one pair."
)
ACCEPTANCE = (
    "Acceptance by depth is unconditional: rounds whose draft was accepted at least up to depth k, over rounds that "
    "drafted so deep."
)
LENGTH = "Tokens a pass: mean acceptance length, the trunk's own token included."
_OVER = {
    "over_reference": "over generate()",
    "over_generate_batch": "over generate_batch()",
    "over_chain": "over the chain",
    "over_best_fixed": "over the best fixed depth",
}


def speed(benches: Sequence[Bench]) -> list[Section]:
    """Figures against the batch size where there are several, else by domain; and a table a file."""
    found = [bench for bench in benches if bench.runs]
    axis = limits([run for bench in found for run in bench.runs if not run.is_plain])
    settings = sorted({(run.order, run.label) for bench in found for run in bench.runs if not run.is_plain})
    looks = {label: place for place, (_, label) in enumerate(settings)}
    figures: list[Block] = []
    for group in together(found):
        batches = {run.batch for bench in group for run in measured(bench.runs) if run.domain == ALL}
        if len(batches) > 1:
            drawn = by_batch(slug(f"speed {group[0].name}"), group, axis, looks)
            note = unlike(group)
            figures.append(replace(drawn, notes=[*drawn.notes, note]) if note else drawn)
        elif batches:
            [bench], [batch] = group, batches
            figures.append(by_domain(slug(f"speed {bench.name}"), bench, batch, axis))
    tables = [_speed_table(bench) for bench in found if any(run.tokens_per_s or run.speedup for run in bench.runs)]
    return [Section("Speed-up and tokens/s", [*figures, *tables])] if tables else []


def acceptance(benches: Sequence[Bench]) -> list[Section]:
    """A figure a file, of its deepest chain at its smallest batch size, and a table of everything that drafted."""
    figures: list[Block] = []
    tables: list[Block] = []
    for bench in benches:
        runs = [run for run in _ordered(bench.runs) if run.drafts and run.acceptance_by_depth]
        if not runs:
            continue
        if chains := [run for run in runs if run.is_chain]:
            batch = min(run.batch for run in chains)
            deepest = max((run for run in chains if run.batch == batch), key=lambda run: len(run.acceptance_by_depth))
            lines = {r.domain: r.acceptance_by_depth for r in chains if (r.batch, r.depth) == (batch, deepest.depth)}
            title = f"Acceptance by depth and domain, {deepest.label}, batch {batch}: {bench.name}"
            drawn = by_depth(slug(f"acceptance {bench.name}"), title, "accepted up to depth k", lines)
            figures.append(replace(drawn, notes=[*drawn.notes, ACCEPTANCE]))
        rows = [[*_place(run), number(run.mean_acceptance_length), shares(run.acceptance_by_depth)] for run in runs]
        columns = ["batch", "domain", "setting", "tokens a pass", "acceptance by depth 1, 2, ..."]
        tables.append(Table(f"Acceptance: {bench.name}", columns, rows, 3, [ACCEPTANCE, LENGTH]))
    return [Section("Acceptance by depth and domain", [*figures, *tables])] if tables else []


def _speed_table(bench: Bench) -> Table:
    over = {name: words for name, words in _OVER.items() if any(getattr(run, name) for run in bench.runs)}
    rows = [
        [*_place(run), rate(run.tokens_per_s), spread(run.speedup), *(spread(getattr(run, name)) for name in over)]
        for run in _ordered(bench.runs)
    ]
    columns = ["batch", "domain", "setting", "tokens/s", "speed-up", *over.values()]
    notes = [SPEEDUP, "Tokens/s: of all requests together; median and percentiles over prompts or groups."]
    if "over_chain" in over:
        notes.append("Over the chain: a tree against the chain that drafts as many nodes, or as many as it can.")
    return Table(f"Speed: {bench.name}", columns, rows, 3, notes)


def _ordered(runs: Sequence[Run]) -> list[Run]:
    """By batch size, domains in the order of the file, "all" first, then settings."""
    domains = list(dict.fromkeys([ALL, *(run.domain for run in runs)]))
    return sorted(runs, key=lambda run: (run.batch, domains.index(run.domain), run.order))


def _place(run: Run) -> list[str]:
    return [str(run.batch), run.domain, run.label]
