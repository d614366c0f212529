"""``foretell bench``: speed at every depth against depth 0 of the same run, for one request or many at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foretell.cli.assets import prompt_files
from foretell.cli.bench_checks import check_batches, check_nodes, check_trees
from foretell.cli.bench_session import OnProgress, Session
from foretell.cli.busy import OnBusy
from foretell.cli.depths import warn_beyond_training
from foretell.cli.loading import check_depths, check_model, default_depths, load_drafter, load_model
from foretell.cli.options import (
    MAX_NODES,
    MAX_ROWS,
    Depths,
    Drafter,
    DraftModel,
    Dtype,
    Heads,
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
from foretell.cli.targets import check_json_target

if TYPE_CHECKING:
    from foretell.analysis.bench_report import BenchReport
    from foretell.analysis.step_costs import StepCosts
    from foretell.analysis.texts import BenchPrompt
    from foretell.cli.options import DepthChoice
    from foretell.decoding.drafter_config import DrafterConfig
    from foretell.models.mtp_model import MTPModel

_DEEPEST = 4


def bench(
    model: Model,
    /,
    *,
    heads: Heads = None,
    drafter: Drafter = None,
    draft_model: DraftModel = None,
    prompts: Prompts = None,
    depths: Depths = None,
    nodes: Annotated[
        str | None,
        Parameter(help="Draft trees of so many nodes too, with commas: 4,8; beside each a chain of as many."),
    ] = None,
    batch: Annotated[str, Parameter(help="Requests decoded at a time, with commas: 1,2,4,8.")] = "1",
    max_tokens: Annotated[int, integer("Produce at most so many tokens for a prompt, at least 2.", 2)] = 128,
    repeats: Annotated[int, integer("Decode every prompt so many times at each depth.", 1)] = 3,
    num_prompts: NumPrompts = None,
    reference: Annotated[
        bool,
        switch(
            "Measure transformers in the same run, on the same weights: generate(), and in batches generate_batch()."
        ),
    ] = False,
    on_busy: OnBusy = "flag",
    dtype: Dtype = "auto",
    json: Json = None,
) -> int:
    """Measure speed and acceptance at every depth against plain decoding (depth 0) in the same run.

    Greedy. All depths take turns on every prompt, so a speed-up is a paired ratio: the median, and in brackets the 10th
    and 90th percentile. One request at a time is timed without its prompt; batches in groups of about twice as many
    prompts, from the start to the last token. Default depths: 0 to 4. Keep the machine otherwise idle. A run that is
    stopped keeps what it has measured. The exit code is 1 where a text differs from depth 0 by more than rounding
    explains.

    Try:

        foretell bench demo --heads adapters/smollm2-135m-instruct --num-prompts 4 --reference
    """
    files = prompt_files(prompts)
    check_json_target(json, [*files, model, draft_model])
    check_prompts(files)
    asked = None if depths is None else parse_depths(depths)
    batches = parse_counts(batch, "--batch", 1, MAX_ROWS)
    tree_sizes = [] if nodes is None else parse_counts(nodes, "--nodes", 2, MAX_NODES)
    if asked is not None:
        check_trees(asked, tree_sizes)
    check_model(model, heads, drafter, draft_model)

    from foretell.analysis.bench_report import together
    from foretell.analysis.step_costs import StepCosts
    from foretell.cli.bench_table import print_bench

    loaded = load_model(model, heads, dtype)
    drafting = load_drafter(loaded, drafter, draft_model, dtype)
    run_depths: Sequence[DepthChoice] = default_depths(loaded, _DEEPEST, drafter=drafting) if asked is None else asked
    check_depths(loaded, run_depths, drafter=drafting)
    check_nodes(loaded, run_depths, tree_sizes, drafting)
    if loaded.heads is None and drafting is None:
        note(
            "hint: this model has no heads, so only plain decoding is measured; --heads names an adapter folder, "
            "--drafter ngram needs none"
        )
    elif not any(run_depths):
        note("hint: depth 0 is plain decoding, so nothing is compared with it; --depths 0,1,2,3 drafts too")
    warnings = warn_beyond_training([("", loaded, drafting)], [*(asked or ()), *tree_sizes])
    taken = load_prompts(loaded, files, num_prompts)
    check_batches(taken, batches)
    costs = StepCosts()
    measure = partial(_measure, loaded, taken, run_depths, tree_sizes, max_tokens, repeats, reference, drafting, costs)
    session: Session[BenchReport] = Session(
        loaded.trunk,
        taken,
        measure,
        lambda report, where: print_bench(results(), report, where, repeats, costs),
        lambda reports: {**together(reports), "step_costs": costs.as_dict()},
        on_busy,
        warnings,
    )
    session.run(batches, json)
    return 0 if all(report.passed for report in session.reports) else 1


def _measure(
    loaded: MTPModel,
    prompts: list[BenchPrompt],
    depths: Sequence[DepthChoice],
    nodes: list[int],
    max_tokens: int,
    repeats: int,
    reference: bool,
    drafter: DrafterConfig | None,
    costs: StepCosts,
    rows: int,
    on_progress: OnProgress,
    on_stop: Callable[[BenchReport], None],
) -> BenchReport:
    from foretell.analysis.batch_bench import run_batch_bench
    from foretell.analysis.bench import run_bench
    from foretell.analysis.systems import TransformersSystem

    rest = (max_tokens, repeats)
    if rows == 1:
        single = TransformersSystem(loaded.trunk) if reference else None
        return run_bench(loaded, prompts, depths, *rest, single, on_progress, drafter, nodes, costs, on_stop)
    return run_batch_bench(loaded, prompts, rows, depths, *rest, reference, on_progress, drafter, nodes, costs, on_stop)
