"""Figures of speed-ups: against the batch size, by setting and domain, and system beside system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from foretell.reporting.axes import aside, left_out, legend, plain_line, points
from foretell.reporting.labels import counted, joined, ratio, short
from foretell.reporting.page import Figure
from foretell.reporting.results import Bench
from foretell.reporting.runs import ALL, Run
from foretell.reporting.style import COLOURS, DASHES, HALF, INK, WIDTH, draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

MOST_SERIES = 8
"""More lines than that nobody tells apart."""

Limits = tuple[float, float]


def limits(runs: Sequence[Run]) -> Limits:
    """One axis for several figures, so that they can be compared: all ranges, and plain decoding's 1."""
    return limits_of([bound for run in runs if run.speedup for bound in (run.speedup.low, run.speedup.high)])


def limits_of(speedups: Sequence[float]) -> Limits:
    """An axis that shows all of them, and plain decoding's 1."""
    low, high = min([*speedups, 1.0]), max([*speedups, 1.0])
    margin = 0.05 * (high - low) or 0.05
    return low - margin, high + margin


def by_batch(slug: str, benches: Sequence[Bench], y_limits: Limits, looks: Mapping[str, int]) -> Figure:
    """Lines of one setting over batch sizes, all prompts; files that share a figure are never joined by a line.

    ``looks``: label of a setting -> number of its colour and marker, the same in every figure as far as they go round.
    """
    runs = {bench.name: _measured(bench.runs) for bench in benches}
    batches = sorted({run.batch for part in runs.values() for run in part})
    settings = sorted({(r.order, r.label, r.is_ours) for part in runs.values() for r in part if not r.is_plain})
    shown = settings[:MOST_SERIES]
    own = _own_looks([label for _, label, ours in shown if ours], looks)

    def paint(canvas: Canvas) -> None:
        axes = canvas.add_subplot()
        plain_line(axes)
        for place, (_, label, ours) in enumerate(shown):
            for number, part in enumerate(runs.values()):
                own_runs = sorted((r for r in part if r.label == label), key=lambda run: run.batch)
                at = [batches.index(run.batch) + aside(place, len(shown)) for run in own_runs]
                points(
                    axes,
                    at,
                    own_runs,
                    own.get(label, looks[label]),
                    ours,
                    DASHES[number % len(DASHES)],
                    label if not number else None,
                )
        if len(benches) > 1:
            for number, bench in enumerate(benches):
                axes.plot([], [], DASHES[number % len(DASHES)], color=INK, label=short(bench.name))
        axes.set_xticks(range(len(batches)), [str(batch) for batch in batches])
        axes.set_xlim(-0.5, len(batches) - 0.5)
        axes.set_ylim(*y_limits)
        axes.set_xlabel("batch size (requests decoded at a time)")
        axes.set_ylabel("speed-up over plain decoding")
        legend(canvas, axes, 2)

    names = joined(bench.name for bench in benches)
    title = f"Speed-up against batch size: {names}"
    alt = f"{counted(len(shown), 'line')} over batch sizes {joined(map(str, batches))}: " + "; ".join(
        f"{label} "
        + ", ".join(
            f"{ratio(run.speedup.median)} at {run.batch}"
            for part in runs.values()
            for run in sorted(part, key=lambda run: run.batch)
            if run.label == label and run.speedup
        )
        for _, label, _ in shown
    )
    notes = ["Points: medians; bars: 10th to 90th percentile; dashes at 1: plain decoding."]
    if len(benches) > 1:
        notes.append("Each file has its own lines: runs of different files are neighbours here, not pairs.")
    return Figure(
        slug,
        title,
        f"{alt}.",
        draw(HALF if len(batches) < 4 else WIDTH, 3.6, paint),
        notes + left_out(len(settings) - len(shown)),
    )


def by_domain(slug: str, bench: Bench, batch: int, y_limits: Limits) -> Figure:
    """Settings of one batch size side by side, a point a domain."""
    runs = [run for run in bench.runs if run.batch == batch and run.speedup and not run.is_plain]
    labels = list(dict.fromkeys(run.label for run in sorted(runs, key=lambda run: run.order)))
    domains = list(dict.fromkeys([ALL, *(run.domain for run in runs)]))
    shown = domains[:MOST_SERIES]

    def paint(canvas: Canvas) -> None:
        axes = canvas.add_subplot()
        plain_line(axes)
        for place, domain in enumerate(shown):
            own_runs = [run for run in runs if run.domain == domain]
            at = [labels.index(run.label) + aside(place, len(shown), 0.5) for run in own_runs]
            points(axes, at, own_runs, place, True, "", short(domain))
        axes.set_xticks(
            range(len(labels)),
            [short(label).replace(", ", "\n") for label in labels],
            fontsize=9 if len(labels) < 7 else 8,
        )
        axes.set_xlim(-0.5, len(labels) - 0.5)
        axes.set_ylim(*y_limits)
        axes.set_ylabel("speed-up over plain decoding")
        legend(canvas, axes, 4)

    title = f"Speed-up by depth and domain, batch {batch}: {bench.name}"
    alt = f"{counted(len(labels), 'setting')} with a point for each of {joined(shown)}: " + "; ".join(
        f"{run.label} {run.domain} {ratio(run.speedup.median)}" for run in runs if run.speedup and run.domain in shown
    )
    notes = ["Points: medians; bars: 10th to 90th percentile; dashes at 1: plain decoding."]
    width = HALF if len(labels) <= 8 else min(HALF + 0.5 * (len(labels) - 8), 12.0)
    return Figure(slug, title, f"{alt}.", draw(width, 3.4, paint), notes + left_out(len(domains) - len(shown)))


def _measured(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.domain == ALL and run.speedup]


def _own_looks(labels: Sequence[str], looks: Mapping[str, int]) -> dict[str, int]:
    """The look of each label, another where a colour is taken in this figure already."""
    found: dict[str, int] = {}
    for label in labels:
        free = [look for look in range(len(COLOURS)) if look not in found.values()]
        wanted = looks[label] % len(COLOURS)
        found[label] = wanted if wanted in free or not free else free[0]
    return found
