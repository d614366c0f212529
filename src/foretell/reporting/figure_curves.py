"""Figures of curves: what a pass costs by its nodes, and how a training went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from foretell.reporting.labels import number, short
from foretell.reporting.node import Spread
from foretell.reporting.page import Figure
from foretell.reporting.results import TrainingLog
from foretell.reporting.style import COLOURS, DASHES, HALF, INK, MARKERS, WIDTH, draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_MOST_POINTS = 400
"""More than that and a curve only gets heavier."""
_MOST_DEPTHS = 6
_LINEAR_UP_TO = 12


def cost(slug: str, title: str, curves: Mapping[str, Sequence[tuple[float, Spread]]]) -> Figure:
    """c(n): a line a batch size; each point has nodes a row, and the pass's time over that of one node a row."""
    most = max(nodes for points in curves.values() for nodes, _ in points)

    def paint(canvas: Canvas) -> None:
        axes = canvas.add_subplot()
        axes.grid(color=INK, alpha=0.15, linewidth=0.6)
        for place, (name, points) in enumerate(curves.items()):
            ranges = [[s.median - s.low for _, s in points], [s.high - s.median for _, s in points]]
            axes.errorbar(
                [nodes for nodes, _ in points],
                [spread.median for _, spread in points],
                ranges,
                fmt=MARKERS[place % len(MARKERS)] + DASHES[place % len(DASHES)],
                color=COLOURS[place % len(COLOURS)],
                elinewidth=0.8,
                label=short(name),
            )
        if most > _LINEAR_UP_TO:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
        else:
            axes.set_xticks(range(1, int(most) + 1))
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("tokens a row in the pass (1 = plain decoding)")
        axes.set_ylabel("time over that of a plain pass")
        handles, labels = axes.get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))

    alt = "Cost of a pass: " + "; ".join(
        f"{name}: " + ", ".join(f"{number(s.median)} at {nodes:g}" for nodes, s in points)
        for name, points in curves.items()
    )
    notes = ["Points: medians; bars: 10th to 90th percentile of the passes, over the median plain pass."]
    return Figure(slug, title, f"{alt}.", draw(HALF, 3.2, paint), notes)


def learning(slug: str, log: TrainingLog) -> Figure:
    """Loss by step, and beside it the share of right guesses, a colour a depth."""
    losses = {key: points for key, points in log.curves.items() if key.startswith("loss")}
    # Chained to depth 1 is agreement at depth 1.
    shares = {k: points for k, points in log.curves.items() if not k.startswith("loss") and k != "chained_1"}
    panels = [part for part in (losses, shares) if part]
    labels = ("loss (nats a token)", "share of targets guessed right")

    def paint(canvas: Canvas) -> None:
        for place, (part, label) in enumerate(
            (part, label) for part, label in zip((losses, shares), labels, strict=True) if part
        ):
            axes = canvas.add_subplot(1, len(panels), place + 1)
            axes.grid(color=INK, alpha=0.15, linewidth=0.6)
            for key, points in part.items():
                look = _look(key)
                if look is not None:
                    steps, values = zip(*_thinned(points), strict=True)
                    axes.plot(steps, values, look[1], color=look[0], label=_words(key), linewidth=1.4)
            axes.set_xlabel("step")
            axes.set_ylabel(label)
            axes.locator_params(axis="x", nbins=6)
            handles, names = axes.get_legend_handles_labels()
            axes.legend(handles, names, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)

    ends = "; ".join(f"{_words(key)} {number(points[-1][1], 3)}" for key, points in log.curves.items())
    alt = f"Curves over {log_steps(log):,.0f} steps, ending at: {ends}."
    svg = draw(WIDTH if len(panels) > 1 else HALF, 3.8, paint)
    most = max(len(points) for points in log.curves.values())
    notes = [f"Of {-(-most // _MOST_POINTS)} log lines one is drawn, and the last."] if most > _MOST_POINTS else []
    if hidden := sorted(key for key in log.curves if _look(key) is None):
        notes.append(f"Not drawn, too many to tell apart: {', '.join(hidden)}.")
    return Figure(slug, f"Learning curves: {log.name}", alt, svg, notes)


def log_steps(log: TrainingLog) -> float:
    """The last step that any curve has."""
    return max(points[-1][0] for points in log.curves.values())


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    every = -(-len(points) // _MOST_POINTS)
    return points if every == 1 else [*points[:-1:every], points[-1]]


def _look(key: str) -> tuple[str, str] | None:
    """Colour and dashes; None for depths beyond those that colours can tell apart."""
    kind, _, depth = key.partition("_")
    if not depth or depth == "0":
        return INK, "-" if not depth else ":"
    if int(depth) > _MOST_DEPTHS:
        return None
    return COLOURS[int(depth) - 1], "--" if kind == "chained" else "-"


def _words(key: str) -> str:
    kind, _, depth = key.partition("_")
    if kind == "loss":
        return {"": "all together", "0": "trunk"}.get(depth, f"depth {depth}")
    return f"depth {depth}" if kind == "agreement" else f"depths 1-{depth} (chained)"
