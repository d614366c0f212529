"""Figures of a compare file: every system's speed-up as a bar with its range, and as a line over batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.reporting.axes import aside, left_out, legend, plain_line, points
from foretell.reporting.figure_speedup import MOST_SERIES, Limits
from foretell.reporting.labels import counted, joined, ratio, short
from foretell.reporting.page import Figure
from foretell.reporting.runs import Run
from foretell.reporting.style import COLOURS, DASHES, HALF, INK, WIDTH, draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def systems(slug: str, name: str, batch: int, bars: Sequence[tuple[str, Run]], x_limits: Limits) -> Figure:
    """One bar a system at one batch size, from the top in the order of the file. ``bars``: label and run, measured."""

    def paint(canvas: Canvas) -> None:
        axes = canvas.add_subplot()
        axes.grid(axis="x", color=INK, alpha=0.15, linewidth=0.6)
        for place, (_, run) in enumerate(bars):
            assert run.speedup is not None
            median, low, high = run.speedup.median, run.speedup.low, run.speedup.high
            # Below 1 it loses: said by colour, by hatching, and by which side of the line the bar ends on.
            loses = median < 1
            axes.barh(
                place,
                median,
                height=0.62,
                color=COLOURS[1] if loses else COLOURS[0],
                hatch="///" if loses else None,
                edgecolor=INK,
                linewidth=0.4,
            )
            axes.errorbar(median, place, xerr=[[median - low], [high - median]], color=INK, elinewidth=1.1)
            axes.annotate(
                ratio(median), (high, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5
            )
        axes.axvline(1.0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), alpha=0.8)
        axes.set_yticks(range(len(bars)), [short(label) for label, _ in bars])
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.set_xlim(0.0, x_limits[1] + 0.12 * x_limits[1])
        axes.set_xlabel("speed-up over plain decoding")

    title = f"Speed-up of every system, batch {batch}: {name}"
    alt = "Bars: " + "; ".join(f"{label} {ratio(run.speedup.median)}" for label, run in bars if run.speedup) + "."
    notes = ["Bars: medians; whiskers: 10th to 90th percentile; dashes at 1: plain decoding; hatched: slower than it."]
    return Figure(slug, title, alt, draw(WIDTH, 0.9 + 0.34 * len(bars), paint), notes)


def over_batches(slug: str, name: str, lines: Sequence[tuple[str, Sequence[Run]]], y_limits: Limits) -> Figure:
    """A line a system over batch sizes. ``lines``: label and measured runs of one setting, a run a batch size."""
    shown = [(label, sorted(runs, key=lambda run: run.batch)) for label, runs in lines[:MOST_SERIES]]
    batches = sorted({run.batch for _, runs in shown for run in runs})

    def paint(canvas: Canvas) -> None:
        axes = canvas.add_subplot()
        plain_line(axes)
        for place, (label, runs) in enumerate(shown):
            at = [batches.index(run.batch) + aside(place, len(shown)) for run in runs]
            points(axes, at, runs, place, True, DASHES[place // len(COLOURS)], label)
        axes.set_xticks(range(len(batches)), [str(batch) for batch in batches])
        axes.set_xlim(-0.5, len(batches) - 0.5)
        axes.set_ylim(*y_limits)
        axes.set_xlabel("batch size (requests decoded at a time)")
        axes.set_ylabel("speed-up over plain decoding")
        legend(canvas, axes, 2)

    alt = f"{counted(len(shown), 'line')} over batch sizes {joined(map(str, batches))}: " + "; ".join(
        f"{label} " + ", ".join(f"{ratio(run.speedup.median)} at {run.batch}" for run in runs if run.speedup)
        for label, runs in shown
    )
    notes = [
        "A line a system: the chain with the highest mean of medians among those measured at most batch sizes, or "
        "another setting, named as such, where it ran no chain. Points: medians; bars: 10th to 90th percentile; dashes "
        "at 1: plain decoding.",
    ]
    title = f"Speed-up of every system against batch size: {name}"
    svg = draw(HALF if len(batches) < 4 else WIDTH, 3.6, paint)
    return Figure(slug, title, f"{alt}.", svg, notes + left_out(len(lines) - len(shown)))
