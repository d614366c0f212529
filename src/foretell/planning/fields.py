"""Values out of a report's JSON, each checked where it is read, so that a damaged file is one line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foretell.errors import DataError


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
    """A finite number of at least ``at_least``."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < at_least:
        raise DataError(f"{name} is {value!r:.60}, expected a number >= {at_least:g}; the file is damaged", path)
    return float(value)


def count(value: Any, path: Path, name: str, at_least: int = 1) -> int:
    """A whole number of at least ``at_least``."""
    if type(value) is not int or value < at_least:
        raise DataError(f"{name} is {value!r:.60}, expected an integer >= {at_least}; the file is damaged", path)
    return value


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
