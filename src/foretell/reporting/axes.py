"""What figures of speed-ups have in common: points with ranges, the line of plain decoding, the legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.reporting.labels import counted, short
from foretell.reporting.runs import Run
from foretell.reporting.style import COLOURS, INK, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


def points(
    axes: Axes, at: Sequence[float], runs: Sequence[Run], place: int, ours: bool, dash: str, label: str | None
) -> None:
    """One series: medians with their ranges. ``place``: number of its colour and marker; ``dash``: "" = no line."""
    spreads = [run.speedup for run in runs if run.speedup]
    medians = [spread.median for spread in spreads]
    ranges = [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]
    colour = COLOURS[place % len(COLOURS)] if ours else INK
    axes.errorbar(
        at,
        medians,
        ranges,
        fmt=f"{MARKERS[place % len(MARKERS)]}{dash}",
        color=colour,
        alpha=1.0 if ours else 0.6,
        elinewidth=1.0,
        label=label and short(label),
    )


def plain_line(axes: Axes) -> None:
    """Plain decoding's 1, and a faint grid."""
    axes.axhline(1.0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), alpha=0.8)
    axes.grid(axis="y", color=INK, alpha=0.15, linewidth=0.6)


def aside(place: int, of: int, width: float = 0.36) -> float:
    """Points of several series at one place on the axis stand beside each other, or bars would hide bars."""
    return 0.0 if of < 2 else width * (place / (of - 1) - 0.5)


def legend(canvas: Canvas, axes: Axes, columns: int) -> None:
    """Below the axes, in so many columns at most; none without series."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        canvas.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))


def left_out(number: int) -> list[str]:
    """The note for series that a figure has no room for."""
    return [f"{counted(number, 'line')} more in the table, not in the figure."] * (number > 0)
