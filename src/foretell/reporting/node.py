"""Node: a JSON object that is read with care. What is absent is None; what cannot be meant is None and is noted."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MOST = 1e15
"""Numbers above it are no measurement of anything here, and axes cannot show them."""
_MOST_SHOWN = 60


@dataclass(frozen=True)
class Spread:
    """Median, and 10th and 90th percentile."""

    median: float
    low: float
    high: float

    @property
    def is_single(self) -> bool:
        """True where all three are one value: there was one measurement, and so no range."""
        return self.low == self.median == self.high


@dataclass(frozen=True)
class Node:
    """A JSON object, the place where it stands ("runs[3]"), and the list of what was wrong, which a whole file shares.

    A key that is absent or null is None without a word. A value of another type, not finite, or outside the range that
    its meaning allows is None too, and one line in ``problems``.
    """

    values: dict[str, Any]
    place: str = ""
    problems: list[str] = field(default_factory=list, compare=False)

    def number(self, name: str, at_least: float = 0.0, at_most: float = MOST) -> float | None:
        """A finite number within the range."""
        return self._checked(self.values.get(name), name, at_least, at_most)

    def count(self, name: str) -> int | None:
        """A whole number >= 0."""
        value = self.number(name)
        if value is not None and value != int(value):
            self._note(name, self.values[name], "a whole number")
            return None
        return None if value is None else int(value)

    def text(self, name: str) -> str | None:
        """A text, without characters that no page can hold."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            self._note(name, value, "a text")
            return None
        return None if value is None else clean(value)

    def flag(self, name: str) -> bool | None:
        """True or false."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            self._note(name, value, "true or false")
            return None
        return value

    def node(self, name: str) -> Node:
        """An object within this one; an empty one where it is absent."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, dict):
            self._note(name, value, "an object")
        return Node(value if isinstance(value, dict) else {}, self._at(name), self.problems)

    def nodes(self, name: str) -> list[Node]:
        """A list of objects."""
        return [
            Node(value, f"{self._at(name)}[{index}]", self.problems)
            for index, value in self._items(name)
            if self._is(dict, value, f"{name}[{index}]", "an object")
        ]

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        items = self._items(name)
        return [clean(value) for index, value in items if self._is(str, value, f"{name}[{index}]", "a text")]

    def shares(self, name: str) -> tuple[float | None, ...]:
        """A list of numbers from 0 to 1, each of them None where it is not known."""
        return tuple(self._checked(value, f"{name}[{index}]", 0.0, 1.0) for index, value in self._items(name))

    def share_of(self, name: str) -> dict[str, float]:
        """An object of numbers from 0 to 1; without those that are not known."""
        inner = self.node(name)
        found = {clean(key): inner.number(key, at_most=1.0) for key in inner.values}
        return {key: value for key, value in found.items() if value is not None}

    def spread(self, name: str) -> Spread | None:
        """Median, low and high, in this order of size; None where one of them is missing."""
        inner = self.node(name)
        low, median, high = inner.number("low"), inner.number("median"), inner.number("high")
        if low is None or median is None or high is None:
            if inner.values:
                self._note(name, inner.values, "median, low and high")
            return None
        if not low <= median <= high:
            self._note(name, inner.values, "low <= median <= high")
            return None
        return Spread(median, low, high)

    def _items(self, name: str) -> Iterator[tuple[int, Any]]:
        value = self.values.get(name)
        if value is not None and not isinstance(value, list):
            self._note(name, value, "a list")
        return enumerate(value if isinstance(value, list) else [])

    def _is(self, kind: type, value: Any, name: str, expected: str) -> bool:
        if not isinstance(value, kind):
            self._note(name, value, expected)
        return isinstance(value, kind)

    def _checked(self, value: Any, name: str, at_least: float, at_most: float) -> float | None:
        if value is None:
            return None
        expected = f"a number from {at_least:g} to {at_most:g}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._note(name, value, expected)
            return None
        # Compared before it is made a float: an integer may be larger than any of them.
        if not at_least <= value <= at_most or not math.isfinite(value):
            self._note(name, value, expected)
            return None
        return float(value)

    def _at(self, name: str) -> str:
        return clean(f"{self.place}.{name}" if self.place else name)

    def _note(self, name: str, value: Any, expected: str) -> None:
        shown = "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else ascii(value)
        shown = shown if len(shown) <= _MOST_SHOWN else shown[: _MOST_SHOWN - 3] + "..."
        self.problems.append(f"{self._at(name)}: {shown} is not {expected}; shown as not known")


def clean(text: str) -> str:
    """The text on one line, with � for control characters and halves of surrogate pairs, which no page can hold."""
    return re.sub(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "�", re.sub(r"[\t\n\r\x0b\x0c]+", " ", text)
    )
