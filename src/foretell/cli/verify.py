"""``foretell verify``: prove that drafting leaves the output as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from foretell.cli.assets import prompt_files
from foretell.cli.loading import check_depths, check_model, default_depths, load_drafter, load_model
from foretell.cli.options import (
    Depths,
    Drafter,
    DraftModel,
    Dtype,
    Heads,
    Json,
    MaxTokens,
    NumPrompts,
    Prompts,
    parse_depths,
    switch,
)
from foretell.cli.output import check_json_target, note, progress, results, write_json
from foretell.cli.prompts import check_prompts, load_prompts
from foretell.errors import UsageError
from foretell.threads import BUSY, share_busy_cores

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from foretell.analysis.law import LawResult
    from foretell.analysis.lossless import EqualityReport
    from foretell.config import DrafterKind

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
    of the type at that logit (bfloat16), is a near tie: rounding may decide it either way. Anything else is a bug, and
    the exit code is 1.

    Try:

        foretell verify demo --heads adapters/smollm2-135m-instruct --num-prompts 5
        foretell verify --sampling
        foretell verify demo --drafter ngram --num-prompts 5
    """
    check_json_target(json)
    if model is None and not sampling:
        raise UsageError("MODEL: give a trunk to check greedy equality, or --sampling to check the sampling law")
    console, passed = results(), True
    found: dict[str, Any] = {}
    if model is not None:
        report = _equality(model, heads, drafter, draft_model, prompts, depths, max_tokens, num_prompts, dtype)
        _print_equality(console, report)
        found["greedy"] = report.as_dict()
        passed = report.passed
    if sampling:
        laws = _law(samples, drafter or ("heads" if draft_model is None else "model"))
        _print_law(console, laws)
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
    run_depths = default_depths(loaded, _DEEPEST, first=1, drafter=drafting) if asked is None else asked
    run_depths = [depth for depth in run_depths if depth]
    if not run_depths:
        raise UsageError("--depths: give a depth above 0 to compare with plain decoding")
    check_depths(loaded, run_depths, drafter=drafting)
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


def _print_equality(console: Console, report: EqualityReport) -> None:
    num_equal = report.num_texts - len(report.differences)
    depths = ", ".join(map(str, report.depths))
    lines = [
        f"greedy: {num_equal} of {report.num_texts} texts equal to depth 0 "
        f"({report.num_prompts} prompts, {report.num_tokens:,} tokens, depths {depths}; "
        f"{report.num_accepted_tokens:,} drafted tokens accepted)"
    ]
    for d in report.differences:
        lines.append(
            f"  {d.verdict}: prompt {d.prompt} ({d.domain}), depth {d.depth}, output token {d.position}: "
            f"expected {d.expected_token} {d.expected_text!r}, got {d.got_token} {d.got_text!r}, "
            f"top-2 gap {d.gap:.2e} (near tie: below {d.limit:.2e})"
        )
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _print_law(console: Console, laws: list[LawResult]) -> None:
    console.print(f"sampling: total variation between the trunk's law and {laws[0].num_samples:,} sampled tokens")
    for law in laws:
        settings = " ".join(f"{name}={value:g}" for name, value in law.settings.items())
        rate = "n/a" if law.acceptance_rate is None else f"{law.acceptance_rate:.2f}"
        verdict = "ok" if law.passed else "BUG"
        console.print(
            f"  {verdict}: depth {law.depth}, {settings}: {law.total_variation:.4f} (limit {law.limit:.3f}), "
            f"acceptance {rate}",
            markup=False,
            soft_wrap=True,
        )
