"""Where in a recipe something stands, for errors that name the line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foretell.errors import UsageError


@dataclass(frozen=True)
class Place:
    """A recipe's file and what is written in it, to say at which line something stands."""

    path: Path
    text: str
    values: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.path)

    def has(self, section: str, key: str) -> bool:
        """True where the recipe itself gives ``key``."""
        table = self.values.get(section, {})
        return isinstance(table, dict) and key in table

    def of(self, section: str, key: str = "") -> str:
        """``FILE:LINE`` of a section ("" = the top) or a key in it, else of its section, else the file alone."""
        current, header = "", ""
        for number, line in enumerate(self.text.splitlines(), start=1):
            here = f"{self.path}:{number}"
            if found := re.match(r"\s*\[+\s*([^\[\]]+?)\s*\]", line):
                current = found[1]
                if current == section or (not section and current == key):
                    header = header or here
            elif found := re.match(r"\s*[\"']?([\w.-]+?)[\"']?\s*=", line):
                if current == section and found[1] == key:
                    return here
                if current == "" and section and found[1] in (section, f"{section}.{key}"):
                    return here  # data = {...}, or data.key = ...
        return header or str(self.path)

    def need(self, ok: bool, section: str, key: str, value: object, allowed: str) -> None:
        """Raise UsageError for ``value`` unless ``ok``."""
        if not ok:
            raise UsageError(f"{self.of(section, key)}: [{section}] {key} is {value!r}; allowed: {allowed}")
