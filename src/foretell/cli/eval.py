"""``foretell eval``: lm-eval tasks, bits per byte of texts, the share of outputs that parse."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from foretell.cli.busy import OnBusy
from foretell.cli.depths import resolve_depth
from foretell.cli.loading import check_model, load_model
from foretell.cli.options import MAX_ROWS, Dtype, Heads, Json, Model, NumPrompts, integer, parse_depth, switch
from foretell.cli.prompts import check_prompts
from foretell.cli.targets import check_json_target
from foretell.errors import UsageError

_NEEDS_LM_EVAL = "--tasks runs lm-eval, which is not installed; pip install 'foretell[eval]'"


def _files(text: str) -> Parameter:
    return Parameter(consume_multiple=True, negative=(), help=text)


def evaluate(
    model: Model,
    /,
    *,
    heads: Heads = None,
    tasks: Annotated[list[str] | None, _files("lm-eval tasks: names, or YAML files with local data.")] = None,
    include_path: Annotated[Path | None, Parameter(help="With --tasks: a folder with more tasks.")] = None,
    limit: Annotated[int | None, integer("With --tasks: the first so many documents of each.", 1)] = None,
    num_fewshot: Annotated[int | None, integer("With --tasks: so many examples before each document.", 0)] = None,
    chat: Annotated[bool, switch("With --tasks: write prompts in the model's chat template.")] = False,
    text: Annotated[list[Path] | None, _files("UTF-8 text files, for bits per byte.")] = None,
    window: Annotated[
        int | None, integer("With --text: tokens read at a time. Default: 1,024, or the trunk's context.", 2)
    ] = None,
    stride: Annotated[
        int | None, integer("With --text: tokens scored in each window after the first. Default: half a window.", 1)
    ] = None,
    parse: Annotated[
        Literal["python", "json"] | None, Parameter(help="Answer --prompts and count the answers that parse.")
    ] = None,
    prompts: Annotated[
        list[Path] | None,
        _files('With --parse: JSONL files, a record with "messages" (a chat) or "prompt" (text to continue) a line.'),
    ] = None,
    num_prompts: NumPrompts = None,
    max_tokens: Annotated[int | None, integer("With --parse: tokens an answer may have. Default: 512.", 1)] = None,
    depth: Annotated[
        str | None,
        Parameter(
            help="Tokens drafted a step; answers are the same at every depth. Default: what heads were made for."
        ),
    ] = None,
    batch: Annotated[int, integer("Requests decoded, or rows scored, at a time.", 1, MAX_ROWS)] = 8,
    on_busy: OnBusy = "flag",
    dtype: Dtype = "auto",
    json: Json = None,
) -> None:
    """Measure quality: lm-eval tasks (--tasks), bits per byte (--text), the share of outputs that parse (--parse).

    At least one of the three; several share one loading and one report. Tasks and answers are decoded by the engine at
    --depth, and what speculation did is shown beside the scores. With heads, --text shows their bits per byte too, at
    every depth, the text itself fed to them. Warnings on standard error say where a number means little. A run that is
    stopped keeps the measurements that were finished.

    Try:

        foretell eval demo --text README.md
        foretell eval demo --heads adapters/smollm2-135m-instruct --parse python --prompts prompts/code.jsonl
        foretell eval demo --tasks task.yaml --limit 20 --depth 0
    """
    files = [*(text or ()), *(prompts or ())]
    check_json_target(json, [model, *files])
    _check_together(
        "--tasks", tasks, include_path=include_path, limit=limit, num_fewshot=num_fewshot, chat=chat or None
    )
    _check_together("--text", text, window=window, stride=stride)
    _check_together("--parse", parse, prompts=prompts, num_prompts=num_prompts, max_tokens=max_tokens)
    if not (tasks or text or parse):
        raise UsageError("nothing to measure; give --tasks, --text or --parse")
    if parse and not prompts:
        raise UsageError("--parse: there is nothing to answer; give --prompts with a JSONL file")
    decodes = bool(tasks or parse)
    if depth is not None and not decodes:
        raise UsageError("--depth: --text decodes nothing; leave it out, or give --tasks or --parse too")
    if on_busy == "abort" and not decodes:
        raise UsageError("--on-busy: --text times nothing; leave it out, or give --tasks or --parse too")
    asked = None if depth is None else parse_depth(depth)
    if include_path is not None and not include_path.is_dir():
        raise UsageError(f"--include-path: {include_path} is no folder; give the folder that holds your YAML files")
    from foretell.evaluation.text_file import read_text

    texts = [(str(file), read_text(file)) for file in text or ()]
    check_prompts(prompts or ())
    if tasks and find_spec("lm_eval") is None:
        raise UsageError(_NEEDS_LM_EVAL)
    check_model(model, heads)

    from foretell.analysis.environment import environment
    from foretell.cli.eval_report import print_parse, print_tasks, print_text
    from foretell.cli.eval_runs import found_tasks, run_parse, run_tasks, run_text, trained_on
    from foretell.cli.eval_session import Measurement, measure_all

    named = found_tasks(tasks, include_path)
    loaded = load_model(model, heads, dtype, pack=decodes)
    used = resolve_depth(loaded, asked, heads) if decodes else 0
    where = environment(loaded.trunk.dtype_name, shlex.join(["foretell", *sys.argv[1:]]))
    report: dict[str, Any] = {"environment": where}
    report |= {"model": model, "heads": heads, "depth": used if decodes else None, "batch": batch}
    warnings = trained_on(heads, files)
    measurements: dict[str, Measurement] = {}
    if texts:
        run = partial(run_text, loaded, texts, window, stride, batch, warnings)
        measurements["text"] = run, print_text
    if named:
        run = partial(run_tasks, loaded, named, limit, num_fewshot, chat, used, batch, warnings)
        measurements["tasks"] = run, print_tasks
    if parse and prompts:
        run = partial(run_parse, loaded, prompts, (parse, num_prompts, max_tokens), used, batch, warnings)
        measurements["parse"] = run, print_parse
    measure_all(measurements, report, warnings, on_busy if decodes else None, json)


def _check_together(mode: str, given: object, **options: object) -> None:
    """Raise UsageError for an option that belongs to another measurement than those asked for."""
    for name, value in options.items():
        if value is not None and not given:
            raise UsageError(f"--{name.replace('_', '-')}: it belongs to {mode}, which is not given; leave it out")
