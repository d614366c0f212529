"""Section: what was measured, where, with which command, and what else took the machine's time."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.reporting.page import ABSENT, Block, Code, Paragraph, Section, Table
from foretell.reporting.results import Bench

_ROWS = {
    "date": "date",
    "cpu": "CPU",
    "gpu": "GPU",
    "cores": "cores",
    "threads": "threads",
    "dtype": "type of weights",
    "torch": "torch",
    "transformers": "transformers",
    "foretell": "foretell",
}
_MODES = {
    "decode": "decode (from a prompt's first token to its last, prompt left out)",
    "end-to-end": "end-to-end (a group of requests from start to last token, prompts included)",
}


def measured(benches: Sequence[Bench]) -> list[Section]:
    """Environment of each bench and compare file, a column a file."""
    if not benches:
        return []
    rows = [[words, *(bench.environment.get(key, ABSENT) for bench in benches)] for key, words in _ROWS.items()]
    rows.append(["drafter", *(_list(run.drafter for run in bench.runs) for bench in benches)])
    rows.append(["batch sizes", *(_list(str(run.batch) for run in bench.runs) for bench in benches)])
    rows.append(["prompts", *(_list(_prompts(bench, batch) for batch in _batches(bench)) for bench in benches)])
    rows.append(["timed", *(_list(_MODES.get(run.mode or "", run.mode) for run in bench.runs) for bench in benches)])
    rows = [row for row in rows if any(cell != ABSENT for cell in row[1:])]
    blocks: list[Block] = []
    for bench in benches:
        if bench.load_note:
            blocks.append(Paragraph(f"{bench.name}: {bench.load_note}.", warns=True))
        if bench.incomplete:
            blocks.append(Paragraph(f"{bench.name}: interrupted, so batch sizes are missing.", warns=True))
    blocks.append(Table("Where and how it was measured", ["", *(bench.name for bench in benches)], rows))
    for bench in benches:
        if bench.command:
            blocks += [Paragraph(f"{bench.name} was made with"), Code(bench.command)]
    return [Section("What was measured", blocks)]


def _batches(bench: Bench) -> list[int]:
    return sorted({run.batch for run in bench.runs})


def _prompts(bench: Bench, batch: int) -> str | None:
    numbers = [run.num_prompts for run in bench.runs if run.batch == batch and run.num_prompts is not None]
    return f"{max(numbers)} at batch {batch}" if numbers else None


def _list(values: object) -> str:
    assert hasattr(values, "__iter__")
    return ", ".join(dict.fromkeys(value for value in values if value)) or ABSENT
