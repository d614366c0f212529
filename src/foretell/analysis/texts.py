"""What is decoded in a measurement, and where two outputs part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class BenchPrompt:
    """A prompt as token ids, the class its numbers are reported under, and what a reader sees of it."""

    domain: str
    token_ids: list[int]
    text: str = ""


def first_difference(expected: Sequence[int], got: Sequence[int]) -> int | None:
    """Index of the first token that differs (one output may just be shorter); None where both are equal."""
    for position, (a, b) in enumerate(zip(expected, got, strict=False)):
        if a != b:
            return position
    return None if len(expected) == len(got) else min(len(expected), len(got))
