"""Section: what was measured, where, with which command, and what else took the machine's time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foretell.reporting.eval_results import Eval
from foretell.reporting.labels import made_of
from foretell.reporting.page import ABSENT, Block, Code, Paragraph, Section, Table
from foretell.reporting.plan_results import PlanFile
from foretell.reporting.proof_results import Probe, Verify, Where
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
    "commit": "commit",
}
_MODES = {
    "decode": "decode (from a prompt's first token to its last, prompt left out)",
    "end-to-end": "end-to-end (a group of requests from start to last token, prompts included)",
}


def measured(benches: Sequence[Bench], proofs: Sequence[Verify | Probe | Eval | PlanFile] = ()) -> list[Section]:
    """Environment of each file, a column a file; other files than a bench's that do not say theirs have none."""
    names = [bench.name for bench in benches]
    wheres = [Where(bench.environment, bench.command, bench.load_note) for bench in benches]
    others = [proof for proof in proofs if proof.where.environment or proof.where.command]
    names += [proof.name for proof in others]
    wheres += [proof.where for proof in others]
    if not names:
        return []
    empty = [ABSENT] * len(others)
    rows = [[words, *(where.environment.get(key, ABSENT) for where in wheres)] for key, words in _ROWS.items()]
    rows.append(["drafter", *(_list(run.drafter for run in bench.runs) for bench in benches), *empty])
    rows.append(["batch sizes", *(_list(str(run.batch) for run in bench.runs) for bench in benches), *empty])
    rows.append(["prompts", *(_list(_prompts(bench, batch) for batch in _batches(bench)) for bench in benches), *empty])
    modes = (_list(_MODES.get(run.mode or "", run.mode) for run in bench.runs) for bench in benches)
    rows.append(["timed", *modes, *empty])
    rows = [row for row in rows if any(cell != ABSENT for cell in row[1:])]
    blocks: list[Block] = []
    for name, where in zip(names, wheres, strict=True):
        if where.load_note:
            blocks.append(Paragraph(f"{name}: {where.load_note}.", warns=True))
    blocks += [_interrupted(bench) for bench in benches if bench.incomplete]
    blocks += [
        Paragraph(f"{one.name}: interrupted: what was not measured to the end is missing.", warns=True)
        for one in proofs
        if isinstance(one, Eval) and one.incomplete
    ]
    blocks.append(Table("Where and how it was measured", ["", *names], rows))
    for name, where in zip(names, wheres, strict=True):
        if where.command:
            blocks += [Paragraph(f"{name} was made with"), Code(where.command)]
    return [Section("What was measured", blocks)]


def _interrupted(bench: Bench) -> Paragraph:
    count = made_of(bench.stopped)
    front = f"{bench.name}: interrupted{f' after {count}' if count else ''}"
    return Paragraph(f"{front}: figures are of whole turns, and batch sizes may be missing.", warns=True)


def _batches(bench: Bench) -> list[int]:
    return sorted({run.batch for run in bench.runs})


def _prompts(bench: Bench, batch: int) -> str | None:
    numbers = [run.num_prompts for run in bench.runs if run.batch == batch and run.num_prompts is not None]
    return f"{max(numbers)} at batch {batch}" if numbers else None


def _list(values: Iterable[str | None]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value)) or ABSENT
