"""Numbers and names as a reader wants them: ``1.49 (1.13-1.86)``, ``42.1 ms``, ``-`` where nothing was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from foretell.reporting.node import Spread
from foretell.reporting.page import ABSENT

_LONGEST = 44


def number(value: float | None, digits: int = 2) -> str:
    """``1.49``."""
    return ABSENT if value is None else f"{value:,.{digits}f}"


def ratio(value: float) -> str:
    """``1.49``; with as many digits as show on which side of 1 it lies."""
    digits = 2
    while digits < 6 and value != 1 and float(f"{value:.{digits}f}") == 1:
        digits += 1
    return f"{value:.{digits}f}"


def spread(value: Spread | None, digits: int = 2) -> str:
    """``1.49 (1.13-1.86)``; without brackets where one measurement has no range."""
    if value is None:
        return ABSENT
    if value.is_single:
        return f"{value.median:,.{digits}f}"
    return f"{value.median:,.{digits}f} ({value.low:,.{digits}f}-{value.high:,.{digits}f})"


def rate(value: Spread | None) -> str:
    """Tokens/s: a decimal below 100."""
    return spread(value, 1 if value is None or value.median < 100 else 0)


def ratio_spread(value: Spread) -> str:
    """A speed-up in a sentence: ``1.49x (1.13-1.86)``."""
    if value.is_single:
        return f"{ratio(value.median)}x (one pair, no range)"
    return f"{ratio(value.median)}x ({value.low:.2f}-{value.high:.2f})"


def percent(value: float | None) -> str:
    """``12 %``; one decimal below 10, and where a whole number would be 100 but the share is less."""
    if value is None:
        return ABSENT
    rounded_up = 0.995 <= value < 1
    if rounded_up and value >= 0.9995:
        return "> 99.9 %"
    return f"{100 * value:.{1 if value < 0.0995 or rounded_up else 0}f} %"


def change(value: float | None) -> str:
    """``+17.3 %``: more or less than another."""
    return ABSENT if value is None else f"{100 * value:+,.1f} %"


def megabytes(value: float | None) -> str:
    """Bytes as MB (10^6)."""
    return ABSENT if value is None else f"{value / 1e6:,.1f}"


def shares(values: Iterable[float | None], digits: int = 2) -> str:
    """``0.45 0.23 0.11``."""
    return " ".join(number(value, digits) for value in values) or ABSENT


def joined(parts: Iterable[str]) -> str:
    """``a, b and c``."""
    found = list(parts)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}" if found else ""


def counted(value: int, noun: str) -> str:
    """``1 text``, ``1,200 texts``."""
    return f"{value:,} {noun}{'s' * (value != 1)}"


def made_of(stopped: Mapping[int, tuple[int, int]]) -> str:
    """``4 of 48 measurements at batch 1``, for each batch size that was not finished; empty where none is known."""
    return joined(
        f"{made:,} of {planned:,} measurements at batch {batch}" for batch, (made, planned) in stopped.items()
    )


def text_count(value: int | None, noun: str) -> str:
    """``counted``, or ``- texts`` where it is not known."""
    return f"{ABSENT} {noun}s" if value is None else counted(value, noun)


def short(text: str) -> str:
    """The text, its middle left out where it is too long for a figure; never with the underscore in front that
    matplotlib takes for "not in the legend"."""
    shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2 - 1]}…{text[-_LONGEST // 2 + 1 :]}"
    return f"\u200b{shown}" if shown.startswith("_") else shown
