"""Whose runs a report holds: a comparison is no bench, and of several drafters a plan takes the heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foretell.errors import DataError

HEADS = "heads"
"""What ``bench`` calls the drafter that a plan is made for."""


def refuse_comparison(values: Mapping[str, Any], path: Path) -> None:
    """Raise DataError for a file of ``compare``: its systems share batch sizes and depths, so they would be mixed."""
    if not values.get("compare"):
        return
    runs = values.get("runs")
    found = [run.get("name") for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []
    names = list(dict.fromkeys(name for name in found if isinstance(name, str)))
    raise DataError(
        f"holds {len(names)} systems side by side ({', '.join(names) or 'none named'}); give a file that foretell "
        "bench wrote",
        path,
    )


def of_one_drafter(runs: Sequence[Mapping[str, Any]], path: Path) -> list[Mapping[str, Any]]:
    """Our runs: all where one drafter made them, those of the heads (and those that drafted nothing) where several did.

    Raises DataError where several did and none of them is the heads.
    """
    ours = [run for run in runs if run.get("system") == "foretell"]
    drafters = list(dict.fromkeys(str(run["drafter"]) for run in ours if run.get("drafter") is not None))
    if len(drafters) < 2:
        return ours
    if HEADS not in drafters:
        raise DataError(
            f"has runs of several drafters ({', '.join(drafters)}), none of them {HEADS}; give a file with one", path
        )
    return [run for run in ours if run.get("drafter") in (None, HEADS)]
