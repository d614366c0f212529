"""``foretell plan``: what drafting would cost and gain, before anything is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from foretell.cli.busy import OnBusyChoice
from foretell.cli.options import MAX_DEPTH, MAX_NODES, Json, integer, switch
from foretell.cli.output import write_json
from foretell.cli.plan_options import Asked, check_options, find_acceptance, is_file_name, real
from foretell.cli.targets import check_json_target
from foretell.planning.hardware import HARDWARE, PlanDtype


def plan(
    model: Annotated[
        str | None,
        Parameter(
            help="A preset (deepseek-v3, llama-3-8b, smollm2-135m, ...), a model folder, with or without weights, or a "
            "config file (.json)."
        ),
    ] = None,
    /,
    *,
    hardware: Annotated[
        str | None,
        Parameter(help=f"{', '.join(HARDWARE)}, or a file that --measure wrote. Default: h100."),
    ] = None,
    devices: Annotated[int, integer("Devices that share every layer (tensor parallel).", 1, 4096)] = 1,
    dtype: Annotated[
        PlanDtype | None,
        Parameter(help="How weights are stored; int4 is computed in bfloat16. Default: bfloat16, or as measured."),
    ] = None,
    batch: Annotated[int, integer("Requests decoded at a time.", 1, 65536)] = 1,
    context: Annotated[int, integer("Tokens that each request has behind it.", 1, 2**24)] = 1024,
    depth: Annotated[
        int | None, integer("Plan for depths 0 to this one. Default: 4, or as far as --acceptance goes.", 1, MAX_DEPTH)
    ] = None,
    nodes: Annotated[
        int | None, integer("Plan for a tree of so many nodes and --depth levels instead of chains.", 2, MAX_NODES)
    ] = None,
    acceptance: Annotated[
        str | None,
        Parameter(
            help="Share of drafts accepted, given that those before were: 0.8 for every depth, 0.8,0.7,0.6 depth by "
            "depth, or a file of bench or probe. With --nodes: that any candidate of the level is accepted."
        ),
    ] = None,
    unconditional: Annotated[
        bool, switch("--acceptance lists the shares accepted up to each depth, as bench prints them.")
    ] = False,
    heads: Annotated[
        str | None,
        Parameter(help="Adapter folder, heads of any kind. Default: the model's own, else one layer of its kind."),
    ] = None,
    distinct: Annotated[bool, switch("A module of its own at every depth, not one for all.")] = False,
    draft_vocab: Annotated[int | None, integer("Heads project only so many tokens of the vocabulary.", 1)] = None,
    draft_cost: Annotated[
        float | None,
        real("Cost of a depth over a pass, the c of E[K] / (1 + c D). Default: its share of FLOPs.", at_least=0),
    ] = None,
    efficiency: Annotated[float, real("Share of the data sheet's peaks that is reached.", above=0, at_most=1)] = 1.0,
    layer_overhead_us: Annotated[
        float, real("Microseconds a layer beyond its kernels: launches, communication.", at_least=0)
    ] = 0.0,
    measure: Annotated[
        bool, switch("Measure this CPU with the model's own shapes first; --json keeps that for --hardware.")
    ] = False,
    on_busy: Annotated[
        OnBusyChoice,
        Parameter(
            help="Where other processes take the cores during --measure: flag says so at once and goes on, abort ends "
            "with exit code 1, without a plan."
        ),
    ] = "flag",
    against: Annotated[
        Path | None, Parameter(help="A file of foretell bench: predictions beside what it measured.")
    ] = None,
    json: Json = None,
) -> None:
    """Predict what drafting costs and gains on a model and a machine, before anything is run.

    Per depth: bytes and FLOPs of a step, idle arithmetic, seconds, tokens/s, speed-up, and the acceptance from which it
    pays. Then the best depth, and the batch size at which drafting stops paying. From a data sheet, seconds are bounds;
    --measure gives estimates for this machine. With --against alone no model is needed: the file's own step costs
    predict its tokens/s.

    Try:

        foretell plan deepseek-v3 --hardware h200 --devices 8 --dtype float8 --acceptance 0.785
        foretell plan llama-3-8b --hardware rtx4090 --dtype int4 --batch 4 --acceptance 0.8,0.7,0.6
        foretell plan smollm2-135m --measure --context 64 --json machine.json
    """
    named = [Path(text) for text in (hardware, acceptance) if text is not None and is_file_name(text)]
    check_json_target(json, [*named, against, model])
    check_options(model, hardware, devices, depth, nodes, measure, on_busy, against)
    known = find_acceptance(acceptance, unconditional, batch, nodes or 0, depth)

    from foretell.cli.plan_against import compare
    from foretell.cli.plan_run import predict

    asked = Asked(
        hardware, devices, dtype, batch, context, depth, nodes or 0, known, heads, distinct, draft_vocab, draft_cost,
        efficiency, layer_overhead_us * 1e-6, measure, on_busy,
    )  # fmt: skip
    predicted = predict(model, asked) if model is not None else None
    report = predicted.report if predicted else {}
    if against is not None:
        report |= compare(against, predicted)
    write_json(json, report)
