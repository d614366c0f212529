"""The machine of a plan, measured here or taken from a file that was."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretell.analysis.environment import cpu_model, environment
from foretell.analysis.load import LoadSnapshot
from foretell.cli.output import note, progress
from foretell.cli.plan_options import Asked, is_file_name
from foretell.errors import UsageError
from foretell.planning.machine_file import read_machine
from foretell.planning.measured import MeasuredMachine
from foretell.planning.model import PlanModel
from foretell.threads import num_cores


def measured_machine(model: PlanModel, asked: Asked, max_depth: int) -> MeasuredMachine | None:
    """As --measure or --hardware asks; None for a data sheet. Raises UsageError where options do not go with it."""
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
