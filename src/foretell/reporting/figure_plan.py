"""Figure: predicted speed-ups beside measured ones, setting by setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.reporting.axes import left_out, legend
from foretell.reporting.figure_speedup import Limits
from foretell.reporting.labels import ratio, short
from foretell.reporting.page import Figure
from foretell.reporting.plan_results import Beside
from foretell.reporting.style import COLOURS, HALF, INK, MARKERS, draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_MOST_ROWS = 24


def beside(slug: str, title: str, rows: Sequence[Beside], x_limits: Limits) -> Figure:
    """A line a setting, from the top: measured and predicted as points, and what lies between them."""
    shown = [
        (row, row.predicted_speedup, row.measured_speedup)
        for row in rows[:_MOST_ROWS]
        if row.predicted_speedup is not None and row.measured_speedup is not None
    ]

    def paint(canvas: Canvas) -> None:
        axes = canvas.add_subplot()
        axes.grid(axis="x", color=INK, alpha=0.15, linewidth=0.6)
        axes.axvline(1.0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), alpha=0.8)
        at = range(len(shown))
        for place, (_, predicted, measured) in zip(at, shown, strict=True):
            axes.plot([predicted, measured], [place, place], color=INK, alpha=0.35, linewidth=1.2)
        for place, (name, values) in enumerate(
            (("measured", [measured for _, _, measured in shown]), ("predicted", [value for _, value, _ in shown]))
        ):
            axes.plot(values, at, MARKERS[place], color=COLOURS[place], label=name)
        axes.set_yticks(at, [short(row.label) for row, _, _ in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlim(*x_limits)
        axes.set_xlabel("speed-up over plain decoding")
        legend(canvas, axes, 2)

    alt = "Points: " + "; ".join(
        f"{row.label} predicted {ratio(predicted)}, measured {ratio(measured)}" for row, predicted, measured in shown
    )
    notes = ["Dashes at 1: plain decoding.", *left_out(len(rows) - len(shown))]
    return Figure(slug, title, f"{alt}.", draw(HALF, 1.2 + 0.25 * len(shown), paint), notes)
