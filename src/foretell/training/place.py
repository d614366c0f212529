"""Where in a recipe something stands, for errors that name the line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from foretell.errors import UsageError


@dataclass(frozen=True)
class Place:
    """A recipe's file, to say at which line something stands."""

    path: Path
    text: str

    def __str__(self) -> str:
        return str(self.path)

    def of(self, section: str, key: str = "") -> str:
        """``FILE:LINE`` of a section or of a key in it ("" = the top), or the file alone where it is not written."""
        current = ""
        for number, line in enumerate(self.text.splitlines(), start=1):
            if found := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
                current = found[1]
                if not key and current == section:
                    return f"{self.path}:{number}"
            elif (found := re.match(r"\s*[\"']?([\w.-]+?)[\"']?\s*=", line)) and (
                (current == section and found[1] == key)
                or (current == "" and found[1] in (section, f"{section}.{key}") and section)
            ):
                return f"{self.path}:{number}"
        return str(self.path)

    def need(self, ok: bool, section: str, key: str, value: object, allowed: str) -> None:
        """Raise UsageError for ``value`` unless ``ok``."""
        if not ok:
            raise UsageError(f"{self.of(section, key)}: [{section}] {key} is {value!r}; allowed: {allowed}")
