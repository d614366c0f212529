"""Windows over a text longer than the trunk's context, in which every token is scored once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from foretell.errors import UsageError


@dataclass(frozen=True)
class Window:
    """Tokens ``start`` to ``stop`` are read; those from ``scored_from`` on are scored, as no window before did."""

    start: int
    stop: int
    scored_from: int


def windows(num_tokens: int, window: int, stride: int) -> Iterator[Window]:
    """Windows over tokens 0 to ``num_tokens``; token 0 is a prefix, read and never scored.

    The first scores all it reads, each further one at most ``stride`` tokens at its end: what is scored there has at
    least ``window - stride`` tokens before it.
    """
    stop = scored_from = min(window, num_tokens)
    if num_tokens > 1:
        yield Window(0, stop, 1)
    while stop < num_tokens:
        stop = min(stop + stride, num_tokens)
        yield Window(stop - window, stop, scored_from)
        scored_from = stop


def check_window(window: int, stride: int, max_positions: int, num_depths: int) -> None:
    """Raise UsageError where the trunk cannot read ``window`` tokens, or a token would lack the context to be scored
    at every depth (depth k reads the states up to k+1 tokens before it).
    """
    if not 2 + num_depths <= window <= max_positions:
        raise UsageError(
            f"window {window} is not allowed; give an integer from {2 + num_depths} to {max_positions}, the trunk's "
            "context in tokens"
        )
    most = window - 1 - num_depths
    if not 1 <= stride <= most:
        raise UsageError(
            f"stride {stride} is not allowed with window {window}"
            + (f" and heads of {num_depths} depths" if num_depths else "")
            + f"; give an integer from 1 to {most}, or a larger window"
        )
