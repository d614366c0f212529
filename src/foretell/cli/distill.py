"""``foretell distill``: write the trunk's own answers, to train heads on."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from foretell.cli.answered import check_answered
from foretell.cli.loading import check_model, load_model
from foretell.cli.options import MAX_ROWS, Dtype, Json, MaxTokens, Model, integer
from foretell.cli.output import note, progress, write_json
from foretell.cli.params import idle_at_0
from foretell.cli.prompts import check_prompts
from foretell.cli.targets import check_json_target, check_target
from foretell.config import SamplingParams


def distill(
    model: Model,
    prompts: Annotated[
        Path, Parameter(help='JSONL file, a record with "messages" (a chat) or "prompt" (text) a line.')
    ],
    output: Annotated[Path, Parameter(help="JSONL file to write; an existing one is continued.")],
    /,
    *,
    max_tokens: MaxTokens = 256,
    temperature: Annotated[float, Parameter(help="0 = greedy.")] = 0.0,
    top_k: Annotated[int, integer("Keep the k likeliest tokens, 0 = all.", 0)] = 0,
    top_p: Annotated[float, Parameter(help="Keep the likeliest tokens that hold this mass, 1 = all.")] = 1.0,
    min_p: Annotated[float, Parameter(help="Drop tokens below this share of the likeliest, 0 = none.")] = 0.0,
    seed: Annotated[int, integer("Same seed, same answers; matters where temperature is not 0.", 0)] = 0,
    batch: Annotated[int, integer("Answer so many prompts at a time.", 1, MAX_ROWS)] = 64,
    limit: Annotated[int, integer("Take only the first so many prompts, 0 = all.", 0)] = 0,
    dtype: Dtype = "auto",
    json: Json = None,
) -> None:
    """Let the trunk answer prompts, and write its answers as JSONL to train heads on.

    Heads learn best from text their trunk writes, because that is the text they will be asked to guess. A stopped run
    goes on where it was when the same command is given again.

    Try:

        foretell distill demo prompts/train.jsonl data/answers.jsonl --limit 500
    """
    check_json_target(json, [model, prompts, output])
    check_target("OUTPUT", output)
    params = SamplingParams(
        max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed
    )
    if hint := idle_at_0(replace(params, seed=None)):
        note(hint)
    check_prompts([prompts])
    check_model(model)
    check_answered(prompts, output)

    from foretell.training.distill import distill as run

    loaded = load_model(model, None, dtype)
    with progress() as bar:
        task = bar.add_task("answers", total=None)

        def show(num_done: int, num_total: int, num_tokens: int) -> None:
            bar.update(task, completed=num_done, total=num_total, description=f"answers ({num_tokens:,} tokens)")

        report = run(loaded, prompts, output, params, max_batch=batch, limit=limit, on_answer=show)
    note(
        f"{report.num_written} answers written ({report.num_tokens:,} tokens), "
        f"{report.num_skipped} were there already: {output}"
    )
    write_json(json, asdict(report))
