"""A bench file beside predictions: printed, and as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.cli.output import note, results
from foretell.cli.plan_options import named_file
from foretell.cli.plan_run import Predicted
from foretell.cli.plan_screen import right_table
from foretell.errors import UsageError
from foretell.planning.against import Compared, against, largest_error, measured_costs
from foretell.planning.bench_file import BenchFile, read_bench
from foretell.planning.group_texts import read_groups
from foretell.planning.measured import MeasuredMachine
from foretell.planning.names import is_other

if TYPE_CHECKING:
    from rich.table import Table


def compare(path: Path, predicted: Predicted | None) -> dict[str, Any]:
    """A bench file beside what its own step costs predict, and what a plan's ``costs`` do; printed, and as values."""
    bench = read_bench(named_file("--against", path, "foretell bench --json"))
    if bench.incomplete:
        note(f"hint: {path} is of a run that was interrupted; its figures are of whole turns alone")
    found = {"step_costs": against(bench, measured_costs(bench))}
    if predicted is not None:
        costs, planned = predicted.costs, predicted.report["model"]["name"]
        if is_other(bench.model, planned):
            note(f"warning: {path} was measured with {bench.model}, and the plan is for {planned}: errors mean nothing")
        found["hardware"] = against(bench, lambda _: costs)
        if predicted.measured is not None:
            _note_difference(bench, predicted.measured)
            _note_prompts(bench, predicted.measured)
        else:
            cpu = bench.environment.get("cpu", "another machine")
            note(f"hint: {path} was measured on {cpu}; the plan is for other hardware unless that is what you named")
    if not any(found.values()):
        raise UsageError(
            f"--against: {path} has no step_costs, so it cannot be explained alone; name a model and --hardware too"
        )
    console = results()
    for source, rows in found.items():
        if rows:
            console.print()
            console.print(_TITLES[source].format(path=path), markup=False, soft_wrap=True)
            console.print(_table_of(rows))
            console.print(_summary(rows), markup=False, soft_wrap=True)
    return {
        "against": {
            "file": str(path),
            **{source: [asdict(row) for row in rows] for source, rows in found.items()},
        }
    }


def _note_difference(bench: BenchFile, machine: MeasuredMachine) -> None:
    """A hint where the bench is from another machine, or ran with other threads."""
    theirs = tuple(bench.environment.get(key) for key in ("cpu", "threads", "dtype"))
    ours = (machine.name, machine.num_threads, machine.dtype)
    if theirs != ours:
        said = [", ".join(str(part) for part in parts) for parts in (theirs, ours)]
        note(f"hint: {bench.path} was measured on {said[0]} (cpu, threads, dtype), this machine is {said[1]}")


def _note_prompts(bench: BenchFile, machine: MeasuredMachine) -> None:
    """A hint where reading prompts is not predicted, but taken from what was measured."""
    if all(group.knows_prompts for groups in read_groups(bench).values() for group in groups):
        if machine.reads or bench.batches == [1]:
            return
        why = "that machine's file has no steps that read prompts; measure it again"
    else:
        why = f"{bench.path} does not say how long its prompts were; a new bench does"
    note(f"hint: what reading a prompt takes is from the bench's own plain run, not predicted: {why}")


_TITLES = {
    "step_costs": "{path}, explained: predicted from the step costs in it and its acceptance",
    "hardware": "{path}, predicted from the machine above and the file's acceptance",
}


def _summary(rows: list[Compared]) -> str:
    worst = largest_error(rows)
    assert worst is not None
    mean = sum(abs(row.error) for row in rows) / len(rows)
    return f"Largest error {worst.error:+.1%} (batch {worst.batch}, depth {worst.depth}), mean {mean:.1%} of tokens/s."


def _table_of(rows: Sequence[Compared]) -> Table:
    names = ("batch", "depth", "tokens/pass", "predicted tok/s", "measured tok/s", "error", "predicted", "measured")
    table = right_table(names)
    for row in rows:
        depth = f"{row.depth}, {row.num_nodes} nodes" if row.is_tree else str(row.depth)
        rates = (f"{row.predicted_tokens_per_s:.1f}", f"{row.measured_tokens_per_s:.1f}", f"{row.error:+.1%}")
        gains = (f"{row.predicted_speedup:.2f}x", f"{row.measured_speedup:.2f}x")
        table.add_row(str(row.batch), depth, f"{row.tokens_per_pass:.2f}", *rates, *gains)
    return table
