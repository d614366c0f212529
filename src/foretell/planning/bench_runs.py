"""Runs of a bench file that something is worked out from: ours, of one drafter, and the one that tells acceptance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretell.errors import DataError
from foretell.planning.drafters import of_one_drafter, refuse_comparison
from foretell.planning.fields import count, number, number_list, objects
from foretell.reporting.runs import ALL


@dataclass(frozen=True)
class AcceptedRun:
    """A run over all prompts. ``shares``: accepted up to depth 1, 2, ...; ``drafter`` is None in files that name none.

    ``mean_length``: tokens a pass, of trees only.
    """

    batch: int
    depth: int
    drafter: str | None
    shares: list[float]
    mean_length: float | None


def our_runs(values: Mapping[str, Any], path: Path) -> Sequence[Mapping[str, Any]]:
    """Ours, those of the heads where several drafted. Raises DataError for a file of ``compare``, and without runs."""
    refuse_comparison(values, path)
    if "runs" not in values:
        raise DataError('no "runs" in it; give a file that foretell bench --json wrote', path)
    return of_one_drafter(objects(values["runs"], path, "runs"), path)


def accepted_run(
    values: Mapping[str, Any], path: Path, batch: int, num_nodes: int = 0, depth: int | None = None
) -> AcceptedRun:
    """The deepest chain, or the tree of ``num_nodes`` and ``depth``; at ``batch`` if that was measured, else at the
    smallest. Raises DataError where there is none.
    """
    fitting = [
        run
        for run in our_runs(values, path)
        if run.get("domain") == ALL
        and type(run.get("depth")) is int
        and run["depth"] > 0
        and run.get("num_nodes", 0) == num_nodes
        and (not num_nodes or run["depth"] == depth)
        and run.get("acceptance_by_depth")
    ]
    if not fitting:
        asked = f"trees of {num_nodes} nodes and depth {depth}" if num_nodes else "chains of a fixed depth"
        raise DataError(f"no run of ours with {asked} over all prompts; measure it with foretell bench", path)
    batches = sorted({count(run.get("batch", 1), path, "batch") for run in fitting})
    chosen = batch if batch in batches else batches[0]
    run = max((run for run in fitting if run.get("batch", 1) == chosen), key=lambda run: int(run["depth"]))
    length = number(run.get("mean_acceptance_length"), path, "mean_acceptance_length", 1.0) if num_nodes else None
    shares = number_list(run["acceptance_by_depth"], path, "acceptance_by_depth")
    drafter = run.get("drafter")
    return AcceptedRun(chosen, run["depth"], str(drafter) if drafter else None, shares, length)
