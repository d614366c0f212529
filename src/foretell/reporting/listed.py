"""Texts that parted from the ones they should equal, one by one."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.reporting.page import ABSENT, Block, Table
from foretell.reporting.proof_results import Difference

MOST_LISTED = 25
"""Near ties that are listed one by one; what is no near tie always is."""
NEAR_TIE = "near tie"


def listed(name: str, differences: Sequence[Difference]) -> list[Block]:
    """BUGs first, then near ties as far as there is room."""
    if not differences:
        return []
    ordered = sorted(differences, key=lambda d: d.verdict == NEAR_TIE)
    num_bugs = sum(d.verdict != NEAR_TIE for d in ordered)
    shown = ordered[: max(num_bugs, MOST_LISTED)]
    rows = [
        [d.verdict, ABSENT if d.prompt is None else str(d.prompt), d.domain or ABSENT, str(d.batch or ABSENT), d.depth]
        + [ABSENT if d.position is None else str(d.position), repr(d.expected_text), repr(d.got_text)]
        + [ABSENT if d.gap is None else f"{d.gap:.2g}", ABSENT if d.limit is None else f"{d.limit:.2g}"]
        for d in shown
    ]
    columns = ["verdict", "prompt", "domain", "batch", "depth", "token", "expected", "got", "top-2 gap", "limit"]
    if any(d.system for d in shown):
        columns.append("system")
        rows = [[*row, d.system or ABSENT] for row, d in zip(rows, shown, strict=True)]
    if any(d.cause for d in shown):
        columns.append("likely cause")
        rows = [[*row, d.cause or ABSENT] for row, d in zip(rows, shown, strict=True)]
    notes = ["Token: place in the output, from 0. Gap: best minus second-best logit of the trunk there."]
    if len(shown) < len(ordered):
        notes.append(f"{len(ordered) - len(shown)} more near ties are in the file.")
    return [Table(f"Differences: {name}", columns, rows, 1, notes)]
