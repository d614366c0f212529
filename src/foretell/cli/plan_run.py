"""Makes the plan that ``foretell plan`` was asked for, prints it, and gives back the report."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from foretell.cli.output import note, results
from foretell.cli.plan_measured import measured_machine
from foretell.cli.plan_options import Asked, deepest
from foretell.cli.plan_screen import closing_lines, depth_table, head_lines
from foretell.errors import UsageError
from foretell.planning.adapter_heads import with_adapter
from foretell.planning.costs import Costs
from foretell.planning.hardware import HARDWARE
from foretell.planning.measured import KEY, MeasuredMachine
from foretell.planning.measured_costs import MeasuredCosts
from foretell.planning.model import PlanModel
from foretell.planning.names import is_other
from foretell.planning.open_model import open_model
from foretell.planning.plan import MAX_BATCH, make_plan
from foretell.planning.published import published_for
from foretell.planning.roofline import Machine, Roofline

_DEFAULT_HARDWARE = "h100"
_DEFAULT_DEPTH = 4


@dataclass(frozen=True)
class Predicted:
    """A plan's report as plain values, the costs that it stands on, and the machine where that was measured."""

    report: dict[str, Any]
    costs: Costs
    measured: MeasuredMachine | None


def predict(name: str, asked: Asked) -> Predicted:
    """Make the plan for one model and print it."""
    model = _model(name, asked)
    if asked.acceptance and is_other(asked.acceptance.model, model.name):
        source = f"--acceptance is of {asked.acceptance.model}, and the plan is for {model.name}"
        note(f"warning: {source}: its heads' guesses may be accepted more or less often")
    max_depth = deepest(asked.depth, asked.acceptance, model.heads.max_depth, _DEFAULT_DEPTH)
    measured = measured_machine(model, asked, max_depth)
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


def _machine(asked: Asked, measured: MeasuredMachine | None) -> Machine:
    if measured is not None:
        if asked.efficiency != 1 or asked.layer_overhead_s:
            raise UsageError(
                "--efficiency and --layer-overhead-us adjust a data sheet; a measured machine needs neither"
            )
        return Machine(measured.hardware, measured.dtype)
    hardware = HARDWARE[asked.hardware or _DEFAULT_HARDWARE]
    return Machine(hardware, asked.dtype or "bfloat16", asked.devices, asked.efficiency, asked.layer_overhead_s)
