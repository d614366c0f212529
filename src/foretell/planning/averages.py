"""One figure for samples of seconds whose machine was slow now and then."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.planning.bench_file import mean_of


def steady_mean(samples: Sequence[float]) -> float:
    """A mean from three percentiles (``mean_of``), as what a bench measured is summed up: a machine that is slow for a
    part of the time counts as that, a single step that was interrupted does not.
    """
    ordered = sorted(samples)
    return mean_of(*(_percentile(ordered, share) for share in (0.1, 0.5, 0.9)))


def _percentile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
