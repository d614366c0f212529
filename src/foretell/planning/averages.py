"""One figure for samples of seconds whose machine was slow now and then."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of the sorted values lies, linear between the two nearest ranks."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def mean_of(low: float, median: float, high: float) -> float:
    """A mean from the 10th, 50th and 90th percentile: Swanson's rule, 0.3, 0.4 and 0.3 of them (Hurst, Brown and
    Swanson, AAPG Bulletin 84, 2000). Tokens/s follow from mean seconds, and slow steps pull that above the median.
    """
    return 0.3 * low + 0.4 * median + 0.3 * high


def steady_mean(samples: Sequence[float]) -> float:
    """A mean from three percentiles (``mean_of``), as what a bench measured is summed up: a machine that is slow for a
    part of the time counts as that, a single step that was interrupted does not.
    """
    ordered = sorted(samples)
    return mean_of(*(percentile(ordered, share) for share in (0.1, 0.5, 0.9)))
