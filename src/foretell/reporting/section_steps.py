"""Sections: what a pass costs by its nodes, c(n), and where the time of a step goes."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.reporting.figure_curves import cost
from foretell.reporting.figure_shares import PARTS, time_split
from foretell.reporting.labels import megabytes, number, percent
from foretell.reporting.node import Spread
from foretell.reporting.page import Block, Section, Table, slug
from foretell.reporting.results import Bench, StepCost
from foretell.reporting.runs import ALL

FEWEST_STEPS = 5
"""Passes seen less often are left out: their median is chance."""


def costs(benches: Sequence[Bench]) -> list[Section]:
    """c(n) of passes in which every place of the batch was in use, over the pass of one node a row."""
    figures: list[Block] = []
    tables: list[Block] = []
    for bench in benches:
        plain = {c.batch: c.seconds.median for c in bench.passes if is_plain(c) and c.seconds.median > 0}
        full = [
            c for c in bench.passes if c.rows == c.batch in plain and c.num_steps >= FEWEST_STEPS and c.nodes >= c.rows
        ]
        full.sort(key=lambda c: (c.batch, c.nodes))
        if not any(c.nodes > c.rows for c in full):
            continue
        curves: dict[str, list[tuple[float, Spread]]] = {}
        for c in full:
            curves.setdefault(f"batch {c.batch}", []).append((c.nodes / c.rows, _over(c.seconds, plain[c.batch])))
        figures.append(cost(slug(f"cost {bench.name}"), f"Cost of a pass, c(n): {bench.name}", curves))
        tables.append(_passes(bench, full, plain))
        if drafts := [d for d in bench.drafts if d.rows == d.batch in plain and d.num_steps >= FEWEST_STEPS]:
            tables.append(_drafts(bench, drafts, plain))
    return [Section("Cost of a pass", [*figures, *tables])] if tables else []


def times(benches: Sequence[Bench]) -> list[Section]:
    """Parts of the steps' seconds, over all prompts, as bars and as a table."""
    figures: list[Block] = []
    tables: list[Block] = []
    for bench in benches:
        runs = sorted((r for r in bench.runs if r.domain == ALL and r.time_share), key=lambda r: (r.batch, r.order))
        if not runs:
            continue
        title = f"Time of a step: {bench.name}"
        bars = [(f"batch {run.batch}, {run.label}", run.time_share) for run in runs]
        figures.append(time_split(slug(f"time {bench.name}"), title, bars))
        parts = [part for part in PARTS if any(part in run.time_share for run in runs)]
        rows = [
            [str(run.batch), run.label]
            + [percent(run.time_share.get(part)) for part in parts]
            + [number(run.step_ms, 1), number(run.round_cost), number(run.predicted_speedup)]
            + [megabytes(run.extra_memory_bytes)]
            for run in runs
        ]
        columns = ["batch", "setting", *parts, "ms a step", "round cost", "predicted speed-up", "extra memory, MB"]
        notes = [
            "Round cost: a step's time over that of depth 0. Predicted speed-up: tokens a pass over round cost, the "
            "limit if every step drafts fully.",
            "Extra memory: the most that the drafter held beyond the trunk: weights, keys and values. MB = 10^6 bytes.",
        ]
        if "prefill" in parts:
            notes.append("Prefill: steps that read prompts too.")
        tables.append(Table(title, columns, rows, 2, notes))
    return [Section("Where the time goes", [*figures, *tables])] if tables else []


def is_plain(c: StepCost) -> bool:
    """A pass of one node for every place of the batch."""
    return c.rows == c.batch == c.nodes


def _over(seconds: Spread, base: float) -> Spread:
    return Spread(seconds.median / base, seconds.low / base, seconds.high / base)


def _passes(bench: Bench, full: Sequence[StepCost], plain: dict[int, float]) -> Table:
    rows = [
        [str(c.batch), str(c.nodes), f"{c.nodes / c.rows:.3g}", str(c.num_steps), number(1000 * c.seconds.median, 1)]
        + [number(c.seconds.median / plain[c.batch])]
        for c in full
    ]
    columns = ["batch", "nodes", "nodes a row", "passes", "ms", "c(n)"]
    notes = [
        "c(n): median time of a pass over n nodes, over that of a pass with one node a row at the same batch size. "
        f"Passes with every place in use, seen {FEWEST_STEPS} times or more.",
    ]
    return Table(f"Passes: {bench.name}", columns, rows, 2, notes)


def _drafts(bench: Bench, drafts: Sequence[StepCost], plain: dict[int, float]) -> Table:
    rows = [
        [str(d.batch), "-" if d.depth is None else str(d.depth), str(d.nodes), str(d.num_steps)]
        + [number(1000 * d.seconds.median, 1), number(d.seconds.median / plain[d.batch])]
        for d in sorted(drafts, key=lambda d: (d.batch, d.depth or 0, d.nodes))
    ]
    columns = ["batch", "depth", "nodes drafted", "steps", "ms", "over a plain pass"]
    return Table(
        f"Drafting: {bench.name}", columns, rows, 3, ["Over a plain pass: median time, over that of depth 0's pass."]
    )
