"""A compare file: several comparisons, one a batch size, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from foretell.analysis.bench_report import stopped_early
from foretell.analysis.compare import Comparison
from foretell.analysis.entries import Entry
from foretell.analysis.step_costs import StepCosts


def together(
    comparisons: Sequence[Comparison], entries: Sequence[Entry], costs: Mapping[str, StepCosts] | None = None
) -> dict[str, Any]:
    """Several batch sizes as one file (the caller adds ``environment``). ``step_costs``: c(n) by a system's name."""
    stopped = [
        {"batch": comparison.batch, **stopped_early(comparison.num_planned, len(comparison.records))}
        for comparison in comparisons
        if comparison.num_planned is not None
    ]
    return {
        "compare": True,
        "systems": [_system(entry, comparisons) for entry in entries],
        "runs": [run.as_dict() for comparison in comparisons for run in comparison.runs],
        "samples": [
            {"batch": comparison.batch, "name": entry.name, **record.as_dict()}
            for comparison in comparisons
            for entry, record in comparison.records
        ],
        "differences": [
            {"name": entry.name, "num_nodes": entry.num_nodes, **asdict(difference)}
            for comparison in comparisons
            for entry, report in comparison.reports
            for difference in report.differences
        ],
        "step_costs": {name: found.as_dict() for name, found in (costs or {}).items()},
        **({"batches": stopped} if stopped else {}),
    }


def _system(entry: Entry, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    contender = entry.contender
    assert contender is not None
    held = [
        r.run.extra_memory_bytes
        for comparison in comparisons
        for r in comparison.runs
        if (r.name, r.run.depth, r.run.num_nodes) == (entry.name, entry.depth, entry.num_nodes)
    ]
    return {
        "name": entry.name,
        "label": contender.label,
        "drafter": contender.drafter.kind,
        "source": contender.source,
        "depth": entry.depth,
        "num_nodes": entry.num_nodes,
        "extra_parameters": contender.parameters,
        "extra_memory_bytes": max(held, default=0),
    }
