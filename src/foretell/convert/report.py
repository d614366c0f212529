"""What a conversion did, tensor by tensor: kept, renamed, changed, added, dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from foretell.errors import CheckpointError


@dataclass
class Conversion:
    """``kept``: tensors whose bits are the source's. ``changed``, ``added`` and ``dropped``: name -> why.

    ``renamed``: heads' tensors among the added ones, their name before -> now. ``notes``: what to know about the
    result. ``checks``: what was read back. ``files``: all that the folder holds.
    """

    action: str
    source: str
    target: str
    kept: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)
    added: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The report in a few lines: counts with reasons, then notes and checks."""
        found = [f"{len(self.kept):,} kept bit for bit"] if self.kept else []
        if self.renamed:
            old, new = next(iter(self.renamed.items()))
            found.append(f"{len(self.renamed):,} renamed, such as {old} -> {new}")
        for what in ("changed", "added", "dropped"):
            for why, count in Counter(getattr(self, what).values()).items():
                found.append(f"{count:,} {what}: {why}")
        return [*found, *(f"note: {note}" for note in self.notes), *(f"checked: {check}" for check in self.checks)]

    def account_for(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Raise CheckpointError where a tensor of the source, or of the result, has no word in this report."""
        of_source = {*self.kept, *self.changed, *self.dropped}
        of_result = {*self.kept, *self.changed, *self.added}
        lost = sorted({*(before.keys() ^ of_source), *(after.keys() ^ of_result)})
        if lost:
            raise CheckpointError(f"{self.target}: not written, {len(lost)} tensors unaccounted for: {', '.join(lost)}")
