"""Sections: what is foretold of a model on a machine, and predictions beside a bench file."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.reporting.figure_plan import beside
from foretell.reporting.figure_speedup import limits_of
from foretell.reporting.labels import change, number, percent, ratio
from foretell.reporting.lead_plan import COSTS, errors
from foretell.reporting.page import ABSENT, Block, Section, Table, slug
from foretell.reporting.plan_results import Beside, PlanFile, Planned, PlannedDepth
from foretell.reporting.plan_words import BOUNDS, EXPERTS
from foretell.reporting.scaled import BYTES, FLOPS, SECONDS, Units, scaled

_SECONDS_ARE = {
    "bounds": BOUNDS,
    "adjusted bounds": "Seconds are bounds from a data sheet, adjusted by what was said of the machine.",
    "measured": "Seconds are put together from kernels and steps that were measured on the machine.",
}


def planned(plans: Sequence[PlanFile]) -> list[Section]:
    """What each plan assumed, a column a file, and a table a file with a row a depth."""
    found = [(plan.name, plan.planned) for plan in plans if plan.planned is not None]
    if not found:
        return []
    keys = list(dict.fromkeys(key for _, plan in found for key in plan.facts))
    rows = [[key, *(plan.facts.get(key, ABSENT) for _, plan in found)] for key in keys]
    blocks: list[Block] = [Table("What was planned", ["", *(name for name, _ in found)], rows)]
    for name, plan in found:
        blocks.append(_depths(name, plan))
    return [Section("Planned, not measured", blocks)]


def predicted(plans: Sequence[PlanFile]) -> list[Section]:
    """A figure and a table a file and source of costs; figures have one axis, so that they can be compared."""
    figures: list[Block] = []
    tables: list[Block] = []
    rows_of = [row for plan in plans for rows in plan.beside.values() for row in rows if _is_drawn(row)]
    axis = limits_of([value for row in rows_of for value in (row.predicted_speedup, row.measured_speedup) if value])
    for plan in plans:
        for source, rows in plan.beside.items():
            title = f"Predicted from {COSTS[source]}: {plan.bench or 'a bench file'} ({plan.name})"
            if drawn := [row for row in rows if _is_drawn(row)]:
                figures.append(beside(slug(f"beside {plan.name} {source}"), title, drawn, axis))
            tables.append(_beside(title, rows))
    return [Section("Prediction beside measurement", [*figures, *tables])] if tables else []


def _is_drawn(row: Beside) -> bool:
    """Plain decoding is 1 in both by definition."""
    return row.depth > 0 and row.predicted_speedup is not None and row.measured_speedup is not None


def _depths(name: str, plan: Planned) -> Table:
    """Columns that nothing is known for are left out."""
    columns = {
        "nodes": [str(d.num_nodes) for d in plan.depths] if any(d.is_tree for d in plan.depths) else [],
        "bytes": [_scaled(d.num_bytes, BYTES) for d in plan.depths],
        "FLOPs": [_scaled(d.flops, FLOPS) for d in plan.depths],
        "FLOP/byte": [number(d.intensity) for d in plan.depths],
        "idle": [percent(d.idle_share) for d in plan.depths],
        "experts": [number(d.num_awake_experts, 1) for d in plan.depths],
        "pass": [_scaled(d.pass_s, SECONDS) for d in plan.depths],
        "draft": [_scaled(d.draft_s, SECONDS) if d.depth else ABSENT for d in plan.depths],
        "tokens a pass": [number(d.tokens_per_pass) for d in plan.depths],
        "tokens/s": [number(d.tokens_per_s, 1) for d in plan.depths],
        "speed-up": [_ratio(d.speedup) for d in plan.depths],
        "simple": [_ratio(d.simple_speedup) for d in plan.depths],
        "break-even": [_even(d) for d in plan.depths],
    }
    shown = {key: cells for key, cells in columns.items() if any(cell != ABSENT for cell in cells)}
    rows = [[str(depth.depth), *cells] for depth, *cells in zip(plan.depths, *shown.values(), strict=True)]
    notes = [
        _SECONDS_ARE.get(plan.seconds_are or "", "The file does not say where its seconds come from."),
        "Bytes, FLOPs and seconds: of one step. Idle: share of the arithmetic at its peak that a step leaves unused. "
        "Break-even: the share accepted at every depth from which the depth gains.",
    ]
    if "simple" in shown:
        notes.append("Simple: tokens a pass over 1 + c D, as if a pass cost the same at every width.")
    if "experts" in shown:
        notes.append(EXPERTS)
    if plan.published:
        said = ", ".join(f"{ratio(speedup)}x at batch {batch}" for batch, speedup in plan.published.items())
        notes.append(f"Published by others: {said} ({plan.published_source or 'no source named'}).")
    return Table(f"Plan: {name}", ["depth", *shown], rows, 1, notes)


def _beside(title: str, rows: Sequence[Beside]) -> Table:
    cells = [
        [str(row.batch), f"{row.depth}" + (f", tree of {row.num_nodes}" if row.is_tree else "")]
        + [number(row.tokens_per_pass), number(row.predicted_tokens_per_s, 1), number(row.measured_tokens_per_s, 1)]
        + [change(row.error), _ratio(row.predicted_speedup), _ratio(row.measured_speedup)]
        for row in rows
    ]
    columns = ["batch", "depth", "tokens a pass", "predicted tokens/s", "measured tokens/s", "error"]
    columns += ["predicted speed-up", "measured speed-up"]
    text = errors(rows)
    notes = [
        *([text[0].upper() + text[1:]] if text else []),
        "Acceptance and lengths of texts are the bench file's own. Predicted speed-up: over the prediction of depth 0; "
        "measured: the bench file's median.",
    ]
    return Table(title, columns, cells, 2, notes)


def _even(depth: PlannedDepth) -> str:
    return "never" if depth.never_pays else number(depth.break_even, 3)


def _ratio(value: float | None) -> str:
    return ABSENT if value is None else ratio(value)


def _scaled(value: float | None, units: Units) -> str:
    return ABSENT if value is None else scaled(value, units)
