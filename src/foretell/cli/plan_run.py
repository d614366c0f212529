"""Runs what ``foretell plan`` was asked for, prints it, and gives back the report."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from foretell.analysis.environment import cpu_model, environment
from foretell.analysis.load import LoadSnapshot
from foretell.cli.output import note, progress, results
from foretell.cli.plan_options import deepest, is_file_name
from foretell.cli.plan_screen import against_table, closing_lines, depth_table, head_lines
from foretell.errors import UsageError
from foretell.planning.acceptance import Acceptance
from foretell.planning.against import Compared, against, largest_error, measured_costs
from foretell.planning.bench_file import BenchFile, read_bench
from foretell.planning.hardware import HARDWARE, PlanDtype
from foretell.planning.measured import KEY, MeasuredCosts, MeasuredMachine, read_machine
from foretell.planning.model import PlanModel
from foretell.planning.open_model import open_model, with_adapter
from foretell.planning.plan import MAX_BATCH, Costs, make_plan
from foretell.planning.published import published_for
from foretell.planning.roofline import Machine, Roofline
from foretell.threads import num_cores

_DEFAULT_HARDWARE = "h100"
_DEFAULT_DEPTH = 4


@dataclass(frozen=True)
class Asked:
    """The command's options; see ``foretell.cli.plan``."""

    hardware: str | None
    devices: int
    dtype: PlanDtype | None
    batch: int
    context: int
    depth: int | None
    num_nodes: int
    acceptance: Acceptance | None
    heads: str | None
    distinct: bool
    draft_vocab: int | None
    draft_cost: float | None
    efficiency: float
    layer_overhead_s: float
    measure: bool


@dataclass(frozen=True)
class Predicted:
    """A plan's report as plain values, the costs that it stands on, and the machine where that was measured."""

    report: dict[str, Any]
    costs: Costs
    measured: MeasuredMachine | None


def predict(name: str, asked: Asked) -> Predicted:
    """Make the plan for one model and print it."""
    model = _model(name, asked)
    max_depth = deepest(asked.depth, asked.acceptance, model.heads.max_depth, _DEFAULT_DEPTH)
    measured = _measured(model, asked, max_depth)
    machine = _machine(asked, measured)
    roofline = Roofline(model, machine, asked.context)
    costs: Costs = MeasuredCosts(measured, model) if measured else roofline
    plan = make_plan(
        roofline,
        costs,
        asked.batch,
        max_depth,
        asked.acceptance,
        asked.num_nodes,
        asked.draft_cost,
        measured.max_rows if measured else MAX_BATCH,
    )
    preset = None if measured else asked.hardware or _DEFAULT_HARDWARE
    published = published_for(model.name, preset, asked.devices) if preset else None
    console = results()
    lines = head_lines(model, machine, plan, asked.acceptance, machine.hardware.source)
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    console.print()
    console.print(depth_table(plan))
    console.print()
    for line in closing_lines(plan, machine, measured, published):
        console.print(line, markup=False, soft_wrap=True)
    report: dict[str, Any] = {
        "model": {key: value for key, value in asdict(replace(model, config=None)).items() if key != "config"},
        "hardware": asdict(machine.hardware)
        | {key: getattr(machine, key) for key in ("dtype", "devices", "efficiency", "layer_overhead_s")}
        | {"balance": machine.hardware.balance(machine.dtype)},
        "acceptance": asdict(asked.acceptance) if asked.acceptance else None,
        "seconds_are": "measured" if measured else "bounds" if machine.is_bound else "adjusted bounds",
        "plan": plan.as_dict(),
        "published": asdict(published) if published else None,
    }
    report |= {KEY: measured.as_dict()} if measured else {}
    return Predicted(report, costs, measured)


def compare(path: Path, predicted: Predicted | None) -> dict[str, Any]:
    """A bench file beside what its own step costs predict, and what a plan's ``costs`` do; printed, and as values."""
    bench = read_bench(path)
    found = {"step_costs": against(bench, measured_costs(bench))}
    if predicted is not None:
        costs = predicted.costs
        found["hardware"] = against(bench, lambda _: costs)
        if predicted.measured is not None:
            _note_difference(bench, predicted.measured)
    if not any(found.values()):
        raise UsageError(
            f"--against: {path} has no step_costs, so it cannot be explained alone; name a model and --hardware too"
        )
    console = results()
    for source, rows in found.items():
        if rows:
            console.print()
            console.print(_TITLES[source].format(path=path), markup=False, soft_wrap=True)
            console.print(against_table(rows))
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


_TITLES = {
    "step_costs": "{path}, explained: predicted from the step costs in it and its acceptance",
    "hardware": "{path}, predicted from the machine above and the file's acceptance",
}


def _summary(rows: list[Compared]) -> str:
    worst = largest_error(rows)
    assert worst is not None
    mean = sum(abs(row.error) for row in rows) / len(rows)
    return f"Largest error {worst.error:+.1%} (batch {worst.batch}, depth {worst.depth}), mean {mean:.1%} of tokens/s."


def _model(name: str, asked: Asked) -> PlanModel:
    model = open_model(name)
    if asked.heads is not None:
        if asked.distinct or asked.draft_vocab is not None:
            option = "--distinct" if asked.distinct else "--draft-vocab"
            raise UsageError(f"{option}: the adapter of --heads says that itself; leave one of them out")
        model = with_adapter(model, asked.heads)
    if asked.distinct:
        model = model.with_heads(replace(model.heads, distinct=True))
    if asked.draft_vocab is not None:
        if asked.draft_vocab > model.vocab_size:
            raise UsageError(
                f"--draft-vocab: {asked.draft_vocab} is more than {model.name} has; give up to {model.vocab_size}"
            )
        model = model.with_draft_vocab(asked.draft_vocab)
    return model


def _measured(model: PlanModel, asked: Asked, max_depth: int) -> MeasuredMachine | None:
    if asked.hardware is not None and is_file_name(asked.hardware):
        machine = read_machine(Path(asked.hardware))
        if asked.dtype not in (None, machine.dtype):
            raise UsageError(f"--dtype: {asked.hardware} was measured in {machine.dtype}; give that, or measure again")
        return machine
    if not asked.measure:
        return None
    from foretell.planning.measure import measure
    from foretell.threads import BUSY, share_busy_cores

    if share_busy_cores():
        note(BUSY)
    start = LoadSnapshot.take()
    with progress() as bar:
        task = bar.add_task("kernels and batch sizes measured", total=None)
        machine = measure(
            model,
            asked.dtype or "bfloat16",
            cpu_model(),
            asked.context,
            max_depth,
            asked.batch,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    return replace(machine, environment=_environment(machine.dtype, start.report(LoadSnapshot.take())))


def _environment(dtype: str, load: dict[str, Any]) -> dict[str, Any]:
    """Where and when the machine was measured; says on standard error where others had its cores meanwhile."""
    import torch

    if load["note"]:
        load["note"] = (
            f"other processes took {load['cores_of_others']:.2f} of {num_cores()} cores while this machine was "
            "measured: its seconds are too long; measure again when it is idle"
        )
        note(f"warning: {load['note']}")
    where = environment(getattr(torch, dtype), shlex.join(["foretell", *sys.argv[1:]]))
    return where | {"load": load}


def _machine(asked: Asked, measured: MeasuredMachine | None) -> Machine:
    if measured is not None:
        if asked.efficiency != 1 or asked.layer_overhead_s:
            raise UsageError(
                "--efficiency and --layer-overhead-us adjust a data sheet; a measured machine needs neither"
            )
        return Machine(measured.hardware, measured.dtype)
    hardware = HARDWARE[asked.hardware or _DEFAULT_HARDWARE]
    return Machine(hardware, asked.dtype or "bfloat16", asked.devices, asked.efficiency, asked.layer_overhead_s)
