"""``foretell bench``: speed at every depth against depth 0 of the same run."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

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
    Model,
    NumPrompts,
    Prompts,
    parse_depths,
    switch,
)
from foretell.cli.output import check_json_target, note, progress, results, write_json
from foretell.cli.prompts import check_prompts, load_prompts

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
    max_tokens: MaxTokens = 128,
    repeats: Annotated[
        int, Parameter(validator=Number(gte=1), help="Decode every prompt so many times at each depth.")
    ] = 3,
    num_prompts: NumPrompts = None,
    reference: Annotated[
        bool, switch("Measure transformers' own generate() in the same run too, on the same weights.")
    ] = False,
    dtype: Dtype = "auto",
    json: Json = None,
) -> int:
    """Measure speed and acceptance at every depth against plain decoding (depth 0) in the same run.

    Batch 1, greedy, prefill left out. All depths take turns on every prompt, so a speed-up is a paired ratio: the
    median, and in brackets the 10th and 90th percentile. Default depths: 0 to 4. Keep the machine otherwise idle. The
    exit code is 1 where a text differs from depth 0 by more than rounding explains.

    Try:

        foretell bench demo --heads adapters/smollm2-135m-instruct --num-prompts 4 --reference
    """
    check_json_target(json)
    files = prompt_files(prompts)
    check_prompts(files)
    asked = None if depths is None else parse_depths(depths)
    check_model(model, heads, drafter, draft_model)

    from foretell.analysis.bench import run_bench
    from foretell.analysis.environment import environment
    from foretell.analysis.systems import TransformersSystem
    from foretell.cli.bench_table import print_bench

    loaded = load_model(model, heads, dtype)
    drafting = load_drafter(loaded, drafter, draft_model, dtype)
    run_depths = default_depths(loaded, _DEEPEST, drafter=drafting) if asked is None else asked
    check_depths(loaded, run_depths, drafter=drafting)
    plain = TransformersSystem(loaded.trunk) if reference else None
    if loaded.heads is None and drafting is None:
        note(
            "hint: this model has no heads, so only plain decoding is measured; --heads names an adapter folder, "
            "--drafter ngram needs none"
        )
    taken = load_prompts(loaded, files, num_prompts)
    with progress() as bar:
        task = bar.add_task("texts decoded", total=None)
        report = run_bench(
            loaded,
            taken,
            run_depths,
            max_tokens,
            repeats,
            plain,
            drafter=drafting,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    where = environment(loaded.trunk.dtype, shlex.join(["foretell", *sys.argv[1:]]))
    print_bench(results(), report, where, repeats)
    write_json(json, {"environment": where, **report.as_dict()})
    return 0 if report.passed else 1
