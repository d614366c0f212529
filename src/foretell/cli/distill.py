"""``foretell distill``: write the trunk's own answers, to train heads on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from foretell.cli.options import Dtype, Json, MaxTokens, Model
from foretell.cli.output import check_json_target, note, progress, write_json
from foretell.config import SamplingParams


def distill(
    model: Model,
    prompts: Annotated[Path, Parameter(help='JSONL file, a record with "messages" or "prompt" a line.')],
    output: Annotated[Path, Parameter(help="JSONL file to write; an existing one is continued.")],
    /,
    *,
    max_tokens: MaxTokens = 256,
    temperature: Annotated[float, Parameter(help="0 = greedy.")] = 0.0,
    top_p: Annotated[float, Parameter(help="Keep the likeliest tokens that hold this mass, 1 = all.")] = 1.0,
    seed: Annotated[int, Parameter(help="Base of the seed each prompt gets.")] = 0,
    batch: Annotated[int, Parameter(validator=Number(gte=1), help="Prompts answered at a time.")] = 64,
    limit: Annotated[int, Parameter(validator=Number(gte=0), help="Take only so many prompts, 0 = all.")] = 0,
    dtype: Dtype = "auto",
    json: Json = None,
) -> None:
    """Answer prompts with the trunk alone and write the answers as JSONL; a stopped run goes on when started again.

    Heads learn best from text their trunk writes, because that is the text they will be asked to guess.

    Try:

        foretell distill demo prompts/train.jsonl data/answers.jsonl --max-tokens 256
    """
    check_json_target(json)
    params = SamplingParams(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)

    from foretell.cli.loading import load_model
    from foretell.training.distill import distill as run
    from foretell.training.jsonl import read_prompts

    read_prompts(prompts)  # a broken line is found before the model is loaded
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
