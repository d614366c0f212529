"""The machine of a plan, measured here or taken from a file that was."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

from foretell.analysis.environment import cpu_model, environment
from foretell.cli.busy import BusyWatch
from foretell.cli.output import note, progress
from foretell.cli.plan_options import Asked, is_file_name, named_file
from foretell.errors import UsageError
from foretell.planning.machine_file import read_machine
from foretell.planning.measured import MeasuredMachine
from foretell.planning.model import PlanModel

_HARM = "the machine's seconds are too long; measure it again when it is idle"


def measured_machine(model: PlanModel, asked: Asked, max_depth: int) -> MeasuredMachine | None:
    """As --measure or --hardware asks; None for a data sheet. Raises UsageError where options do not go with it."""
    if asked.hardware is not None and is_file_name(asked.hardware):
        machine = read_machine(named_file("--hardware", Path(asked.hardware), "foretell plan --measure --json"))
        if asked.dtype not in (None, machine.dtype):
            raise UsageError(f"--dtype: {asked.hardware} was measured in {machine.dtype}; give that, or measure again")
        return machine
    if not asked.measure:
        return None
    from foretell.threads import BUSY, share_busy_cores

    if share_busy_cores():  # before torch is imported
        note(BUSY)

    from foretell.planning.measure import measure

    with BusyWatch(asked.on_busy, _HARM) as watch, progress() as bar:
        machine = measure(
            model,
            asked.dtype or "bfloat16",
            cpu_model(),
            asked.context,
            max_depth,
            asked.batch,
            watch.shown(bar, "kernels and batch sizes measured"),
        )
    load = watch.report()
    watch.check_all(load)
    if load["note"]:
        note(f"warning: {load['note']}")
    where = environment(machine.dtype, shlex.join(["foretell", *sys.argv[1:]]))
    return replace(machine, environment=where | {"load": load})
