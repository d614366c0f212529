"""``foretell verify``: prove that drafting leaves the output as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

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
    switch,
)
from foretell.cli.output import note, progress, results, write_json
from foretell.cli.targets import check_json_target
from foretell.cli.verify_greedy import check_greedy
from foretell.cli.verify_report import print_equality, print_law
from foretell.errors import UsageError
from foretell.threads import BUSY, share_busy_cores

if TYPE_CHECKING:
    from foretell.analysis.law import LawResult
    from foretell.config import DrafterKind


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
    sampling: Annotated[
        bool, switch("Check the distribution of samples too, on a built-in model where it is known.")
    ] = False,
    samples: Annotated[
        int | None, integer("Tokens to sample for each setting that --sampling checks. Default: 20000.", 100)
    ] = None,
    json: Json = None,
) -> int:
    """Prove that drafting changes nothing: greedy text token by token, samples in their distribution.

    Greedy text at every depth (default: 1 to 4) is compared with plain decoding. At a first difference it prints the
    position, both tokens and the trunk's top-2 logit gap there. A gap below 1e-4 (float32), or below 0.05 or two steps
    of the type at that logit (bfloat16), is a near tie: rounding may decide it either way, and --exact rules it out.
    Anything else is a bug, and the exit code is 1.

    Try:

        foretell verify demo --heads adapters/smollm2-135m-instruct --num-prompts 5
        foretell verify --sampling
        foretell verify demo --drafter ngram --num-prompts 5 --batch 4
        foretell verify demo --heads adapters/smollm2-135m-instruct --num-prompts 2 --exact
    """
    check_json_target(json, [model, draft_model, *(prompts or ())])
    if model is None and not sampling:
        raise UsageError("MODEL: give a trunk to check greedy equality, or --sampling to check the sampling law")
    if samples is not None and not sampling:
        raise UsageError(f"--samples: {samples} tokens are sampled with --sampling only; give it too, or leave it out")
    if model is None:
        _refuse_greedy(
            heads=heads,
            draft_model=draft_model,
            prompts=prompts,
            depths=depths,
            nodes=nodes,
            exact=exact or None,
            batch=batch,
            max_tokens=max_tokens,
            num_prompts=num_prompts,
            dtype=dtype,
        )
    console, passed = results(), True
    found: dict[str, Any] = {}
    if model is not None:
        report = check_greedy(
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
        )
        print_equality(console, report)
        found["greedy"] = report.as_dict()
        passed = report.passed
    if sampling:
        laws = _law(samples or 20_000, drafter or ("heads" if draft_model is None else "model"))
        print_law(console, laws)
        found["sampling"] = [law.as_dict() for law in laws]
        passed = passed and all(law.passed for law in laws)
    console.print("PASSED" if passed else "FAILED")
    write_json(json, {"passed": passed, **found})
    return 0 if passed else 1


def _refuse_greedy(**options: Any) -> None:
    """Raise UsageError for options that the check of samples has no use for: its model is built in."""
    if given := [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]:
        raise UsageError(
            f"MODEL: {', '.join(given)} {'is' if len(given) == 1 else 'are'} for the check of greedy text; give a "
            f"trunk for it, or leave {'it' if len(given) == 1 else 'them'} out"
        )


def _law(num_samples: int, drafter: DrafterKind) -> list[LawResult]:
    if share_busy_cores():
        note(BUSY)
    from foretell.analysis.law import check_sampling_law

    with progress() as bar:
        task = bar.add_task("laws measured", total=None)
        return check_sampling_law(
            num_samples,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
            drafter=drafter,
        )
