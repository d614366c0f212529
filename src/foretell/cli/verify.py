"""``foretell verify``: prove that drafting leaves the output as it is."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foretell.cli.depths import check_shape
from foretell.cli.options import (
    MAX_ROWS,
    Depths,
    Drafter,
    DraftModel,
    DtypeName,
    Exact,
    Heads,
    Json,
    Nodes,
    NumPrompts,
    Prompts,
    integer,
    parse_depths,
    switch,
)
from foretell.cli.output import note, progress, results, write_json
from foretell.cli.params import Params, build_params
from foretell.cli.targets import check_json_target
from foretell.cli.verify_case import load_case
from foretell.cli.verify_report import print_controls, print_equality, print_law, print_model_law
from foretell.errors import UsageError
from foretell.threads import BUSY, share_busy_cores

if TYPE_CHECKING:
    from foretell.analysis.law import LawResult
    from foretell.config import DrafterKind

_LAW_DEPTHS, _LAW_TREES = (0, 1, 3), ((2, 5),)
"""Chains and trees of the built-in model that are sampled by default."""


def verify(
    model: Annotated[
        str | None,
        Parameter(help="Trunk: a folder, a GGUF file, a hub name (OWNER/NAME), or demo. Not needed with --sampling."),
    ] = None,
    /,
    *,
    heads: Heads = None,
    drafter: Drafter = None,
    draft_model: DraftModel = None,
    prompts: Prompts = None,
    depths: Depths = None,
    nodes: Nodes = None,
    exact: Exact = False,
    batch: Annotated[
        int | None,
        integer("Decode all prompts in so many rows at a time too; each must equal its single run.", 2, MAX_ROWS),
    ] = None,
    max_tokens: Annotated[int | None, integer("Produce at most so many tokens for a prompt. Default: 64.", 1)] = None,
    num_prompts: NumPrompts = None,
    dtype: Annotated[
        DtypeName | None,
        Parameter(help="Type to compute in; auto = bfloat16 where this CPU is fast in it. Default: float32."),
    ] = None,
    params: Params = None,
    controls: Annotated[
        bool,
        switch(
            "Check the meter too: what a drafter that knows the text, one that is a place too early, and a shuffled "
            "one get accepted must be what is right of it."
        ),
    ] = False,
    sampling: Annotated[
        bool,
        switch(
            "Check samples too: whether they are draws from the trunk's own distribution. Without MODEL, on a built-in "
            "model whose law is known."
        ),
    ] = False,
    samples: Annotated[
        int | None,
        integer("Tokens to sample for each setting. Default: 2000 of MODEL, 20000 of the built-in model.", 100),
    ] = None,
    json: Json = None,
) -> int:
    """Prove that drafting changes nothing: greedy text token by token, samples in their distribution.

    Greedy text at every depth (default: 1 to 4) is compared with plain decoding. At a first difference it prints the
    position, both tokens, the trunk's top-2 logit gap there and the likely cause. A gap below 1e-4 (float32), or below
    0.05 or two steps of the type at that logit (bfloat16), is a near tie: rounding may decide it either way, and
    --exact rules it out. Anything else is a bug, and the exit code is 1. --params sets rules for both checks, such as
    repetition_penalty=1.2, and temperature=0.7 for samples. Warnings on standard error say where prompts or texts are
    such that the proof means little.

    Try:

        foretell verify demo --heads adapters/smollm2-135m-instruct --num-prompts 5 --controls
        foretell verify --sampling
        foretell verify demo --heads adapters/smollm2-135m-instruct --sampling --params top_p=0.9 --num-prompts 3
        foretell verify demo --drafter ngram --num-prompts 5 --batch 4
        foretell verify demo --heads adapters/smollm2-135m-instruct --num-prompts 2 --exact
    """
    check_json_target(json, [model, draft_model, *(prompts or ())])
    if model is None and not sampling:
        raise UsageError("MODEL: give a trunk to check greedy equality, or --sampling to check the sampling law")
    if samples is not None and not sampling:
        raise UsageError(f"--samples: {samples} tokens are sampled with --sampling only; give it too, or leave it out")
    rules = build_params(params)
    if controls and max_tokens is not None and max_tokens < 3:
        raise UsageError(f"--max-tokens: in {max_tokens} tokens nothing can be drafted, so --controls needs 3 or more")
    if model is None:
        _refuse_greedy(
            heads=heads,
            draft_model=draft_model,
            prompts=prompts,
            exact=exact or None,
            batch=batch,
            max_tokens=max_tokens,
            num_prompts=num_prompts,
            dtype=dtype,
            params=params,
            controls=controls or None,
        )
    console, passed = results(), True
    found: dict[str, Any] = {}
    if model is not None:
        case = load_case(
            model,
            heads,
            drafter,
            draft_model,
            prompts,
            depths,
            nodes,
            exact,
            batch,
            max_tokens or 64,
            num_prompts,
            dtype or "float32",
            rules,
        )
        from foretell.analysis.environment import environment

        found["environment"] = environment(case.model.trunk.dtype_name, shlex.join(["foretell", *sys.argv[1:]]))
        found["model"] = case.model.trunk.name
        report = case.equality()
        print_equality(console, report)
        found["warnings"] = case.reasons_against(report)
        for reason in found["warnings"]:
            note(f"warning: {reason}")
        found["greedy"] = report.as_dict()
        passed = report.passed
        if controls:
            meters = case.controls()
            print_controls(console, meters)
            found["controls"] = [control.as_dict() for control in meters]
            passed = passed and all(control.passed for control in meters)
        if sampling:
            measured = case.law(samples or 2000)
            print_model_law(console, measured)
            found["model_law"] = [law.as_dict() for law in measured]
            passed = passed and all(law.passed for law in measured)
    else:
        laws = _law(samples or 20_000, drafter or "heads", depths, nodes)
        print_law(console, laws)
        found["sampling"] = [law.as_dict() for law in laws]
        passed = all(law.passed for law in laws)
    console.print("PASSED" if passed else "FAILED")
    write_json(json, {"passed": passed, **found})
    return 0 if passed else 1


def _refuse_greedy(**options: Any) -> None:
    """Raise UsageError for options that the check of samples has no use for: its model is built in."""
    if given := [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]:
        raise UsageError(
            f"MODEL: {', '.join(given)} {'is' if len(given) == 1 else 'are'} for a model of yours; give a trunk, or "
            f"leave {'it' if len(given) == 1 else 'them'} out"
        )


def _law(num_samples: int, drafter: DrafterKind, depths: str | None, nodes: int | None) -> list[LawResult]:
    chains, trees = list(_LAW_DEPTHS), [] if drafter == "ngram" or "model" in drafter else list(_LAW_TREES)
    if depths is not None:
        chains = [depth for depth in parse_depths(depths) if depth != "auto"]
        if len(chains) < len(parse_depths(depths)):
            raise UsageError("--depths: auto is no fixed depth; --sampling without MODEL takes numbers such as 0,1,3")
    if nodes is not None:
        for depth in filter(None, chains):
            check_shape(depth, nodes, False)
        if drafter != "heads":
            raise UsageError(f"--nodes: {drafter} drafts chains here; leave it out, or check --drafter heads")
        chains, trees = [depth for depth in chains if not depth], [(depth, nodes) for depth in chains if depth]
    elif depths is not None:
        trees = []
    if share_busy_cores():
        note(BUSY)
    from foretell.analysis.law import check_sampling_law

    with progress() as bar:
        task = bar.add_task("laws measured", total=None)
        return check_sampling_law(
            num_samples,
            chains,
            trees,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
            drafter=drafter,
        )
