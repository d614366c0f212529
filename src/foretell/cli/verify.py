"""``foretell verify``: prove that drafting leaves the output as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from foretell.cli.assets import prompt_files
from foretell.cli.depths import check_draft
from foretell.cli.loading import check_depths, check_model, default_depths, load_drafter, load_model
from foretell.cli.options import (
    DepthChoice,
    Depths,
    Drafter,
    DraftModel,
    Dtype,
    Exact,
    Heads,
    Json,
    MaxTokens,
    Nodes,
    NumPrompts,
    Prompts,
    parse_depths,
    switch,
)
from foretell.cli.output import check_json_target, note, progress, results, write_json
from foretell.cli.prompts import check_prompts, load_prompts
from foretell.cli.verify_report import print_equality, print_law
from foretell.errors import UsageError
from foretell.threads import BUSY, share_busy_cores

if TYPE_CHECKING:
    from pathlib import Path

    from foretell.analysis.law import LawResult
    from foretell.analysis.lossless import EqualityReport
    from foretell.config import DrafterKind
    from foretell.decoding.drafter_config import DrafterConfig
    from foretell.models.mtp_model import MTPModel

_DEEPEST = 4


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
        Parameter(
            validator=Number(gte=2),
            help="Decode all prompts in so many rows at a time too; each must equal its single run.",
        ),
    ] = None,
    max_tokens: MaxTokens = 64,
    num_prompts: NumPrompts = None,
    dtype: Dtype = "float32",
    sampling: Annotated[
        bool, switch("Check the distribution of samples too, on a built-in model where it is known.")
    ] = False,
    samples: Annotated[
        int, Parameter(validator=Number(gte=100), help="Tokens to sample for each setting that --sampling checks.")
    ] = 20_000,
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
    check_json_target(json)
    if model is None and not sampling:
        raise UsageError("MODEL: give a trunk to check greedy equality, or --sampling to check the sampling law")
    if model is None and (nodes or exact or batch):
        raise UsageError("MODEL: --nodes, --exact and --batch are about greedy equality; give a trunk to check it on")
    console, passed = results(), True
    found: dict[str, Any] = {}
    if model is not None:
        report = _equality(
            model, heads, drafter, draft_model, prompts, depths, nodes, exact, batch, max_tokens, num_prompts, dtype
        )
        print_equality(console, report)
        found["greedy"] = report.as_dict()
        passed = report.passed
    if sampling:
        laws = _law(samples, drafter or ("heads" if draft_model is None else "model"))
        print_law(console, laws)
        found["sampling"] = [law.as_dict() for law in laws]
        passed = passed and all(law.passed for law in laws)
    console.print("PASSED" if passed else "FAILED")
    write_json(json, {"passed": passed, **found})
    return 0 if passed else 1


def _equality(
    model: str,
    heads: str | None,
    drafter: DrafterKind | None,
    draft_model: str | None,
    prompts: list[Path] | None,
    depths: str | None,
    nodes: int | None,
    exact: bool,
    batch: int | None,
    max_tokens: int,
    num_prompts: int | None,
    dtype: Any,
) -> EqualityReport:
    files = prompt_files(prompts)
    check_prompts(files)
    asked = None if depths is None else parse_depths(depths)
    check_model(model, heads, drafter, draft_model)

    from foretell.analysis.lossless import check_greedy_equality

    loaded = load_model(model, heads, dtype)
    drafting = load_drafter(loaded, drafter, draft_model, dtype)
    if loaded.heads is None and drafting is None:
        raise UsageError(
            f"{model} has no heads, so there is nothing to verify; --heads names an adapter folder, --drafter ngram "
            "needs none"
        )
    run_depths = _depths(loaded, asked, nodes, drafting)
    check_depths(loaded, run_depths, drafter=drafting)
    for depth in run_depths:
        check_draft(loaded, depth, nodes, exact, drafting)
    taken = load_prompts(loaded, files, num_prompts)
    with progress() as bar:
        task = bar.add_task("prompts compared", total=len(taken))
        return check_greedy_equality(
            loaded,
            taken,
            run_depths,
            max_tokens,
            drafter=drafting,
            on_progress=lambda done, total: bar.update(task, completed=done),
            num_nodes=nodes or 0,
            exact=exact,
            batch=batch,
        )


def _depths(
    model: MTPModel, asked: list[DepthChoice] | None, nodes: int | None, drafter: DrafterConfig | None
) -> list[DepthChoice]:
    """The depths to compare with plain decoding; by default 1 to 4, below the number of nodes where that is given."""
    if asked is None:
        deepest = _DEEPEST if nodes is None else min(_DEEPEST, nodes - 1)
        return [*default_depths(model, deepest, first=1, drafter=drafter)]
    if not (drafted := [depth for depth in asked if depth]):
        raise UsageError("--depths: give a depth above 0 to compare with plain decoding")
    return drafted


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
