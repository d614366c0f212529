"""How a bench report looks: one table a batch size, and below it what it means (`bench_lines`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from foretell.analysis.records import Spread
from foretell.analysis.summary import ALL

if TYPE_CHECKING:
    from rich.console import Console

    from foretell.analysis.bench_report import BenchReport
    from foretell.analysis.step_costs import StepCosts
    from foretell.analysis.summary import RunSummary

_LEFT = ("domain", "system", "acceptance by depth")
_MOST_DEPTHS = 4
"""Depths of acceptance that a table has room for; the file has all."""


def print_bench(
    console: Console, report: BenchReport, where: dict[str, Any], repeats: int, costs: StepCosts | None = None
) -> None:
    """Table per domain and depth, then what it means."""
    from foretell.cli.bench_lines import conclusions

    table = Table(box=None, pad_edge=False, header_style="bold")
    runs = _shown(report.runs)
    rows = [_cells(run, report) for run in runs]
    for name in rows[0]:
        table.add_column(name, justify="left" if name in _LEFT else "right")
    for i, (run, cells) in enumerate(zip(runs, rows, strict=True)):
        last = i + 1 == len(rows) or runs[i + 1].domain != run.domain
        table.add_row(*cells.values(), end_section=last)
    console.print(table)
    console.print()
    for line in conclusions(report, where, repeats, costs):
        console.print(line, markup=False, soft_wrap=True)


def _shown(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """All of them, but for a domain that has every prompt: its lines would be those of "all" again."""
    domains = {run.domain for run in runs} - {ALL}
    return [run for run in runs if run.domain == ALL or len(domains) > 1]


def _cells(run: RunSummary, report: BenchReport) -> dict[str, str]:
    """Column name -> cell; the same names for every run of a report."""
    cells = {"domain": run.domain, "system": run.system.removeprefix("transformers "), "depth": run.setting.label}
    if report.batch > 1:
        cells["all tokens/s"] = _rate(run.decode_tokens_per_s)
        cells["a request's"] = _rate(run.request_tokens_per_s)
    else:
        cells["tokens/s"] = _rate(run.decode_tokens_per_s)
    cells["speed-up"] = spread(run.speedup, 2, "x")
    systems = {other.system for other in report.runs}
    if "transformers" in systems:
        cells["over transformers"] = spread(run.speedup_over_reference, 2, "x")
    if "transformers generate_batch" in systems:
        cells["over generate_batch"] = spread(run.speedup_over_generate_batch, 2, "x")
    cells["tokens/pass"] = number(run.tokens_per_pass if run.drafter else None, 2)
    cells["acceptance by depth"] = rates(run.acceptance_by_depth)
    share = run.time_share
    heading = "draft/verify/rest" if report.batch == 1 else "time shares"
    cells[heading] = "" if share is None else "/".join(f"{100 * part:.0f}" for part in share.values()) + " %"
    cells["round cost"] = number(run.round_cost, 2)
    if report.batch == 1:
        cells["predicted"] = number(run.predicted_speedup, 2, "x")
    return cells


def _rate(value: Spread | None) -> str:
    return spread(value, 1 if value is None or value.median < 100 else 0)


def spread(value: Spread | None, digits: int, unit: str = "") -> str:
    """``1.31x (1.10-1.52)``, or n/a; ``1.31x (one pair)`` for a ratio of one, and ``1.00x`` of a system to itself."""
    if value is None:
        return "n/a"
    if value.low == value.median == value.high:
        return f"{value.median:.{digits}f}{unit}{' (one pair)' if unit and value.median != 1 else ''}"
    return f"{value.median:.{digits}f}{unit} ({value.low:.{digits}f}-{value.high:.{digits}f})"


def rates(values: list[float]) -> str:
    """``0.45 0.24``, and dots for depths that there is no room for."""
    shown = " ".join(f"{rate:.2f}" for rate in values[:_MOST_DEPTHS])
    return f"{shown} ..." if len(values) > _MOST_DEPTHS else shown


def number(value: float | None, digits: int, unit: str = "") -> str:
    """The number, or nothing where there is none."""
    return "" if value is None else f"{value:.{digits}f}{unit}"
