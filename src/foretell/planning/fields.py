"""Values out of a report's JSON, each checked where it is read, so that a damaged file is one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foretell.errors import DataError

MAX_TOKENS = 2**20
"""Of one prompt or text: about as long as contexts get. Longer ones in a file are damage, and would be walked through
token by token."""
LEAST_TIME = 1e-9
"""Seconds of a step, a kernel or a token: no clock here sees less, and rates are one over it."""
_MOST = 10**18
"""No count, rate or time in a report comes near it, and products of a few such numbers do not overflow."""


def objects(value: Any, path: Path, name: str) -> Sequence[Mapping[str, Any]]:
    """A list of objects."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise DataError(f"{name} is no list of objects; the file is damaged or of another kind", path)
    return value


def an_object(value: Any, path: Path, name: str) -> Mapping[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise DataError(f"{name} is {value!r:.60}, expected an object; the file is damaged or of another kind", path)
    return value


def number(value: Any, path: Path, name: str, at_least: float = 0.0) -> float:
    """A number from ``at_least`` to 10^18."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not at_least <= value <= _MOST:  # nor nan
        raise DataError(
            f"{name} is {value!r:.60}, expected a number >= {at_least:g} and <= {_MOST:g}; the file is damaged", path
        )
    return float(value)


def count(value: Any, path: Path, name: str, at_least: int = 1, at_most: int = _MOST) -> int:
    """A whole number from ``at_least`` to ``at_most``."""
    if type(value) is not int or not at_least <= value <= at_most:
        raise DataError(
            f"{name} is {value!r:.60}, expected an integer >= {at_least} and <= {at_most:,}; the file is damaged", path
        )
    return value


def lengths(value: Any, path: Path, name: str) -> list[int]:
    """Tokens of prompts or texts, at least one of them, each at most ``MAX_TOKENS`` long."""
    if not isinstance(value, list) or not value:
        raise DataError(f"{name} is {value!r:.60}, expected a list of lengths; the file is damaged", path)
    return [count(item, path, name, at_most=MAX_TOKENS) for item in value]


def share(value: Any, path: Path, name: str) -> float:
    """A number from 0 to 1."""
    found = number(value, path, name)
    if found > 1:
        raise DataError(f"{name} is {found:g}, expected a share from 0 to 1; the file is damaged", path)
    return found


def number_list(value: Any, path: Path, name: str) -> list[float]:
    """Shares from 0 to 1, at least one."""
    if not isinstance(value, list) or not value:
        raise DataError(f"{name} is {value!r:.60}, expected a list of shares; the file is damaged", path)
    return [share(item, path, name) for item in value]
