"""``foretell compare``: every way of drafting for one trunk, side by side in one run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foretell.cli.assets import DEMO_DRAFT_MODEL, DEMO_HEADS, find, prompt_files
from foretell.cli.bench_checks import check_batches
from foretell.cli.bench_session import OnProgress, Session
from foretell.cli.busy import OnBusy
from foretell.cli.depths import warn_beyond_training
from foretell.cli.loading import check_model, describe_heads, load_model, naming_option
from foretell.cli.options import (
    MAX_NODES,
    MAX_ROWS,
    DraftModel,
    Dtype,
    Json,
    Model,
    NumPrompts,
    Prompts,
    integer,
    parse_counts,
    parse_depths,
    switch,
)
from foretell.cli.output import note, results
from foretell.cli.prompts import check_prompts, load_prompts
from foretell.cli.report import check_report_target, report
from foretell.cli.targets import check_json_target
from foretell.errors import UsageError

if TYPE_CHECKING:
    from foretell.analysis.compare import Comparison
    from foretell.analysis.step_costs import StepCosts


def compare(
    model: Model = "demo",
    /,
    *,
    heads: Annotated[
        list[str] | None,
        Parameter(
            consume_multiple=True,
            negative=(),
            help="Adapter folders, one or more. Default for demo: one of each kind, as far as adapters/ has them.",
        ),
    ] = None,
    draft_model: DraftModel = None,
    no_ngram: Annotated[bool, switch("Leave n-gram look-up out, alone and in front of the others.")] = False,
    no_stacks: Annotated[bool, switch("Leave out look-up in front of the others.")] = False,
    depths: Annotated[str, Parameter(help="Depths of every drafter, with commas: 1,2,3; auto: as many as pay.")] = "3",
    nodes: Annotated[
        str | None, Parameter(help="Trees of so many nodes too, with commas: 4,8, for drafters that branch.")
    ] = None,
    prompts: Prompts = None,
    batch: Annotated[str, Parameter(help="Requests decoded at a time, with commas: 1,4,8.")] = "1",
    max_tokens: Annotated[int, integer("Produce at most so many tokens for a prompt, at least 2.", 2)] = 64,
    repeats: Annotated[int, integer("Decode every prompt so many times with each.", 1)] = 1,
    num_prompts: NumPrompts = None,
    on_busy: OnBusy = "flag",
    dtype: Dtype = "auto",
    json: Json = None,
    html: Annotated[
        Path | None,
        Parameter(help="Make a page with a table and figures of the --json file too, as foretell report does."),
    ] = None,
) -> int:
    """Compare ways to draft for one model: heads of every kind, a draft model, look-up, and look-up before each.

    All of them, and plain decoding, take turns on every prompt, so a speed-up is a paired ratio: the median, and in
    brackets the 10th and 90th percentile. Keep the machine otherwise idle. A run that is stopped keeps what it has
    measured. The exit code is 1 where a text differs from plain decoding by more than rounding explains.

    Try:

        foretell compare demo --num-prompts 2 --max-tokens 32
    """
    files = prompt_files(prompts)
    if heads == []:
        raise UsageError("--heads: give one adapter folder or more, or leave it out")
    adapters = heads or []
    if model == "demo" and not heads and draft_model is None:
        adapters, draft_model = _demo_systems()
    check_json_target(json, [*files, model, draft_model])
    if html is not None:
        if json is None:
            raise UsageError(f"--html: {html} is made of the file that --json writes; give --json FILE too")
        check_report_target(html)
    check_prompts(files)
    run_depths = [depth for depth in parse_depths(depths) if depth]
    if not run_depths:
        raise UsageError(f'--depths: "{depths}" drafts nothing; give 1 or more, plain decoding is always measured')
    batches = parse_counts(batch, "--batch", 1, MAX_ROWS)
    tree_sizes = [] if nodes is None else parse_counts(nodes, "--nodes", 2, MAX_NODES)
    for adapter in adapters:
        check_model(model, adapter)
    check_model(model, None, None, draft_model)

    from foretell.analysis.compare import run_comparison
    from foretell.analysis.compare_file import together
    from foretell.analysis.contenders import contenders_of, load_heads
    from foretell.analysis.entries import entries_of, left_out
    from foretell.cli.compare_table import print_comparison

    loaded = load_model(model, "none" if adapters else None, dtype, pack=False)
    with naming_option("--heads"):
        own = load_heads(loaded.trunk, adapters)
    own += [] if loaded.heads is None else [(model, loaded.heads)]
    for source, found in own:
        note(f"{source}: {describe_heads(found)}")
    small = None if draft_model is None else load_model(draft_model, None, dtype)
    with naming_option("--draft-model"):
        contenders = contenders_of(loaded.trunk, own, small, not no_ngram, not no_stacks)
    if not contenders:
        raise UsageError("nothing to compare: give --heads or --draft-model, or leave --no-ngram out")
    for contender in contenders:
        contender.model.pack()
    with naming_option("--depths"):
        entries = entries_of(contenders, run_depths, tree_sizes)
    for line in left_out(contenders, run_depths, tree_sizes):
        note(f"note: {line}")
    drafting = [(contender.name, contender.model, contender.drafter) for contender in contenders]
    warnings = warn_beyond_training(drafting, run_depths)
    taken = load_prompts(loaded, files, num_prompts)
    check_batches(taken, batches)
    costs: dict[str, StepCosts] = {}

    def measure(rows: int, on_progress: OnProgress, on_stop: Callable[[Comparison], None]) -> Comparison:
        return run_comparison(loaded.trunk, entries, taken, rows, max_tokens, repeats, on_progress, costs, on_stop)

    session: Session[Comparison] = Session(
        loaded.trunk,
        taken,
        measure,
        lambda comparison, where: print_comparison(results(), comparison, where, repeats),
        lambda comparisons: together(comparisons, entries, costs),
        on_busy,
        warnings,
    )
    try:
        session.run(batches, json)
    finally:
        is_whole = json is not None and session.written == json  # a part is written beside a whole one, without a page
        if html is not None and json is not None and is_whole and any(c.runs for c in session.reports):
            report([json], html=html, title=f"Ways to draft for {loaded.trunk.name}", overwrite=True)
    return 0 if all(comparison.passed for comparison in session.reports) else 1


def _demo_systems() -> tuple[list[str], str | None]:
    """Those of the project's adapters that are here; raises UsageError where none is."""
    found = [str(path) for name in DEMO_HEADS if (path := find(name))]
    small = find(DEMO_DRAFT_MODEL)
    if not found:
        raise UsageError("--heads: give adapter folders; the project's own adapters/ folder is not here")
    return found, None if small is None else str(small)
