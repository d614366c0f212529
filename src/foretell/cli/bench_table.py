"""How a bench report looks: one table, the best depth by name, and a line on whether the texts were equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from foretell.analysis.summary import ALL, RunSummary, Spread, best_run

if TYPE_CHECKING:
    from rich.console import Console

    from foretell.analysis.bench import BenchReport


def print_bench(console: Console, report: BenchReport, where: dict[str, Any], repeats: int) -> None:
    """Table per domain and depth, then what it means."""
    with_reference = any(run.system == "transformers" for run in report.runs)
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = ["domain", "system", "depth", "tokens/s", "speed-up"]
    names += ["over transformers"] if with_reference else []
    names += ["tokens/pass", "acceptance by depth", "draft/verify/rest", "round cost", "predicted"]
    for name in names:
        table.add_column(name, justify="left" if name in ("domain", "system", "acceptance by depth") else "right")
    for i, run in enumerate(report.runs):
        last = i + 1 == len(report.runs) or report.runs[i + 1].domain != run.domain
        table.add_row(*_cells(run, with_reference), end_section=last)
    console.print(table)
    console.print()
    for line in _conclusions(report, where, repeats):
        console.print(line, markup=False, soft_wrap=True)


def _cells(run: RunSummary, with_reference: bool) -> list[str]:
    reference = [spread(run.speedup_over_reference, 2, "x")] if with_reference else []
    share = run.time_share
    return [
        run.domain,
        run.system,
        str(run.depth),
        spread(run.decode_tokens_per_s, 1),
        spread(run.speedup, 2, "x"),
        *reference,
        number(run.mean_acceptance_length, 2),
        " ".join(f"{rate:.2f}" for rate in run.acceptance_by_depth),
        "" if share is None else "/".join(f"{100 * share[part]:.0f}" for part in ("draft", "verify", "other")) + " %",
        number(run.round_cost, 2),
        number(run.predicted_speedup, 2, "x"),
    ]


def spread(value: Spread | None, digits: int, unit: str = "") -> str:
    """``1.31x (1.10-1.52)``, or n/a."""
    if value is None:
        return "n/a"
    return f"{value.median:.{digits}f}{unit} ({value.low:.{digits}f}-{value.high:.{digits}f})"


def number(value: float | None, digits: int, unit: str = "") -> str:
    """The number, or nothing where there is none."""
    return "" if value is None else f"{value:.{digits}f}{unit}"


def _conclusions(report: BenchReport, where: dict[str, Any], repeats: int) -> list[str]:
    best = best_run(report.runs)
    drafting = [run for run in report.runs if run.domain == ALL and run.system == "foretell" and run.depth]
    lines = []
    if best.depth:
        lines.append(f"Best depth: {best.depth}, {spread(best.speedup, 2, 'x')} of depth 0.")
    elif drafting:
        near = max(drafting, key=lambda run: run.speedup.median if run.speedup else 0.0)
        lines.append(
            "Best depth: 0. Drafting does not pay here: "
            f"depth {near.depth} runs at {spread(near.speedup, 2, 'x')} of depth 0."
        )
    if drafting:
        lines.append(
            "Predicted = tokens per pass / round cost (a step's time over depth 0's): the limit if every step drafts."
        )
        lines.append(_equality(report, drafting))
    if reference := next((run for run in report.runs if run.system == "transformers"), None):
        num_equal = reference.num_prompts - report.num_reference_differences
        lines.append(
            f"Text of transformers equal to depth 0: {num_equal} of {reference.num_prompts} "
            "(other kernels, so near ties may fall otherwise)."
        )
    lines.append(
        f"{where['cpu']}, {where['cores']} cores, {where['threads']} threads, {where['dtype']}, "
        f"torch {where['torch']}; {repeats} repeat{'s' * (repeats > 1)}, batch 1, greedy, prefill left out"
        + (f", drafter {drafting[0].drafter}." if drafting else ".")
    )
    return lines


def _equality(report: BenchReport, drafting: list[RunSummary]) -> str:
    num_texts = sum(run.num_prompts for run in drafting)
    num_bugs = sum(d.verdict == "BUG" for d in report.differences)
    line = f"Text equal to depth 0: {num_texts - len(report.differences)} of {num_texts}"
    if num_near := len(report.differences) - num_bugs:
        line += f"; {num_near} part at a near tie of the two likeliest tokens"
    return line + (f"; {num_bugs} part for no such reason, WHICH IS A BUG: run foretell verify." if num_bugs else ".")
