"""Figures of shares from 0 to 1: acceptance by depth, a probe's figures by depth, the parts of a step's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from foretell.reporting.figure_speedup import MOST_SERIES
from foretell.reporting.labels import joined, number, percent, short
from foretell.reporting.page import Figure
from foretell.reporting.style import COLOURS, DASHES, HALF, INK, MARKERS, draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PARTS = {"draft": COLOURS[1], "verify": COLOURS[0], "other": INK, "prefill": COLOURS[2]}
"""Parts of a step's time, in the order in which they are stacked."""
_ROOM = 0.055
"""Share of a bar that has room for its number."""


def by_depth(slug: str, title: str, label: str, lines: Mapping[str, Sequence[float | None]]) -> Figure:
    """A line a series over depths 1, 2, ...; a depth without a value is a gap. ``label``: of the axis."""
    shown = dict(list(lines.items())[:MOST_SERIES])
    deepest = max(map(len, shown.values()))

    def paint(canvas: Canvas) -> None:
        axes = canvas.add_subplot()
        axes.grid(axis="y", color=INK, alpha=0.15, linewidth=0.6)
        for place, (name, values) in enumerate(shown.items()):
            axes.plot(
                range(1, len(values) + 1),
                [float("nan") if value is None else value for value in values],
                MARKERS[place % len(MARKERS)] + DASHES[place % len(DASHES)],
                color=COLOURS[place % len(COLOURS)],
                label=short(name),
            )
        if deepest <= 12:
            axes.set_xticks(range(1, deepest + 1))
        axes.set_xlim(0.7, deepest + 0.3)
        axes.set_ylim(0.0, 1.0)
        axes.set_xlabel("depth (tokens ahead)")
        axes.set_ylabel(label)
        handles, labels = axes.get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))

    alt = f"{label} at depths 1 to {deepest}: " + "; ".join(
        f"{name} {' '.join(map(number, values))}" for name, values in shown.items()
    )
    notes = [f"In the table only: {joined(list(lines)[MOST_SERIES:])}."] if len(lines) > MOST_SERIES else []
    return Figure(slug, title, f"{alt}.", draw(HALF, 3.0, paint), notes)


def time_split(slug: str, title: str, bars: Sequence[tuple[str, Mapping[str, float]]]) -> Figure:
    """One stacked bar a setting, from the top. ``bars``: label, and part of the step -> share of its seconds."""
    parts = [part for part in PARTS if any(shares.get(part) for _, shares in bars)]

    def paint(canvas: Canvas) -> None:
        axes = canvas.add_subplot()
        left = [0.0] * len(bars)
        for part in parts:
            widths = [shares.get(part, 0.0) for _, shares in bars]
            quiet = PARTS[part] == INK
            axes.barh(
                range(len(bars)),
                widths,
                left=left,
                height=0.72,
                color=PARTS[part],
                alpha=0.3 if quiet else 1,
                label=part,
            )
            for place, width in enumerate(widths):
                if width >= _ROOM:
                    at, colour = left[place] + width / 2, INK if quiet else "#ffffff"
                    axes.text(at, place, f"{100 * width:.0f}", ha="center", va="center", color=colour, fontsize=8)
            left = [begin + width for begin, width in zip(left, widths, strict=True)]
        axes.set_yticks(range(len(bars)), [short(label) for label, _ in bars])
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.set_xlim(0.0, max(1.0, *left))
        axes.set_xticks([0.0, 0.25, 0.5, 0.75, 1.0], ["0", "25", "50", "75", "100 %"])
        axes.set_xlabel("share of the time of all steps")
        handles, labels = axes.get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside lower center", ncols=4)

    alt = "Stacked bars: " + "; ".join(
        f"{label}: " + ", ".join(f"{part} {percent(shares[part])}" for part in parts if part in shares)
        for label, shares in bars
    )
    return Figure(slug, title, f"{alt}.", draw(HALF, 1.1 + 0.25 * len(bars), paint))
