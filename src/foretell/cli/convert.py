"""``foretell convert``: native heads out of a checkpoint, into one, and into the layouts that engines load."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from foretell.cli.loading import check_model
from foretell.cli.options import Json, integer, switch
from foretell.cli.output import note, progress, results, write_json
from foretell.cli.targets import check_json_target
from foretell.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretell.convert.report import Conversion

Layout = Literal["mimo", "qwen3_5", "deepseek-style", "native", "mellum"]
Trunk = Annotated[str, Parameter(help="Trunk: a model folder, a GGUF file, or demo.")]
Out = Annotated[Path, Parameter(help="Folder to write; it appears whole, or not at all.")]
Adapter = Annotated[str, Parameter(help="Adapter folder with the heads, as foretell train writes it.")]
Overwrite = Annotated[bool, switch("Replace what an earlier conversion wrote there.")]

convert = App(
    name="convert",
    sort_key=12,
    help=(
        "Convert checkpoints: export heads to an engine's layout, import native ones, strip them, graft them back.\n\n"
        "The source stays as it is. Files that no change touches are copied, the others rewritten one by one. The "
        "report, with every tensor's name, goes to conversion.json of a new model folder, and to --json."
    ),
)


@convert.command(name="export", sort_key=0)
def export_(
    trunk: Trunk,
    out: Out,
    /,
    *,
    heads: Adapter,
    to: Annotated[
        Layout,
        Parameter(
            help="mimo: vLLM, SGLang; llama, Qwen2, Mistral trunks, one module. qwen3_5: these and llama.cpp; Qwen3.5 "
            "and Qwen3-Next trunks, one module. deepseek-style: transformers' generate(use_mtp=True); any trunk. "
            "mellum: the same without remote code; dense Qwen3 trunks, one module. native: as the trunk's own family "
            "(DeepSeek, GLM, Qwen3.5, ...) stores them, for native heads that were trained further."
        ),
    ],
    modules: Annotated[int | None, integer("Export so many distinct modules, the first ones. Default: all.", 1)] = None,
    fold_norm: Annotated[
        bool,
        switch("Move the final norm's gain into the output head, so that vLLM and SGLang hand heads the same state."),
    ] = False,
    no_reload: Annotated[bool, switch("Do not load the result to compare what it computes.")] = False,
    overwrite: Overwrite = False,
    json: Json = None,
) -> None:
    """Write a trunk and its heads as one checkpoint that an engine loads.

    The trunk keeps its bits (but for --fold-norm). The result is loaded again, and what its trunk and heads compute is
    compared with what they computed before, unless memory has no room for both.

    Try:

        foretell convert export demo models/smollm2-mtp --heads adapters/smollm2-135m-instruct --to deepseek-style
    """
    _check_json(json, out)
    check_model(trunk, heads)
    from foretell.convert.export import export

    _show(
        lambda say: export(
            trunk,
            heads,
            out,
            to,
            num_modules=modules or 0,
            fold_norm=fold_norm,
            reload=not no_reload,
            overwrite=overwrite,
            on_progress=say,
        ),
        json,
    )


@convert.command(name="import", sort_key=1)
def import_(
    heads: Annotated[
        str, Parameter(help="A model folder with native heads; with --trunk also heads alone: a folder or file.")
    ],
    out: Out,
    /,
    *,
    trunk: Annotated[str | None, Parameter(help="The trunk of heads that lie elsewhere.")] = None,
    overwrite: Overwrite = False,
    json: Json = None,
) -> None:
    """Write native heads as an adapter: to probe, train further, or export to another layout.

    Families: foretell inspect says which one a folder is. Heads alone may be a family's tensors, speculators of type
    mtp, Medusa's medusa_lm_head.pt, or Meta's consolidated.pth.

    Try:

        foretell convert import models/Qwen3.5-0.8B adapters/qwen3.5-native
        foretell convert import medusa_lm_head.pt adapters/medusa --trunk models/vicuna-7b
    """
    _check_json(json, out)
    check_model(trunk or heads, None)
    from foretell.convert.import_heads import import_heads

    _show(lambda say: import_heads(heads, out, trunk, overwrite=overwrite), json)


@convert.command(sort_key=2)
def strip(
    model: Annotated[str, Parameter(help="A model folder with native heads, or with heads of ours.")],
    out: Out,
    /,
    *,
    overwrite: Overwrite = False,
    json: Json = None,
) -> None:
    """Write a model without its heads: a plain checkpoint, whose trunk has the same bits.

    Try:

        foretell convert strip models/Qwen3.5-0.8B models/Qwen3.5-0.8B-plain
    """
    _check_json(json, out)
    from foretell.convert.strip import strip as run

    _show(lambda say: run(model, out, overwrite=overwrite, on_progress=say), json)


@convert.command(sort_key=3)
def graft(
    model: Annotated[str, Parameter(help="A fine-tuned model folder that lost its native heads when it was saved.")],
    out: Out,
    /,
    *,
    original: Annotated[str, Parameter(help="The model folder it was tuned from, with its heads.")],
    overwrite: Overwrite = False,
    json: Json = None,
) -> None:
    """Put the original's native heads back on a fine-tuned model.

    Try:

        foretell convert graft models/tuned models/tuned-mtp --original models/Qwen3.5-0.8B
    """
    _check_json(json, out)
    from foretell.convert.graft import graft as run

    _show(lambda say: run(model, original, out, overwrite=overwrite, on_progress=say), json)


@convert.command(name="fold-norm", sort_key=4)
def fold_norm_(trunk: Trunk, out: Out, /, *, heads: Adapter, overwrite: Overwrite = False, json: Json = None) -> None:
    """Turn heads for the state after the trunk's final norm into heads for the one before it, which vLLM's MiMo reads.

    Nearly the same, not exactly: train the result a little before it is exported (docs/guides/engines.md).

    Try:

        foretell convert fold-norm demo adapters/pre --heads adapters/smollm2-135m-instruct
    """
    _check_json(json, out)
    check_model(trunk, heads)
    from foretell.convert.fold_norm import fold_norm

    _show(lambda say: fold_norm(trunk, heads, out, overwrite=overwrite), json)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def _check_json(json: Path | None, out: Path) -> None:
    """A report within the new folder would be in its way, and in that of the next conversion."""
    if json is not None and out.resolve() in json.resolve().parents:
        raise UsageError(f"--json: {json} is inside {out}, which is written whole; give a name elsewhere")
    check_json_target(json, [])


def _show(run: Callable[[Callable[[str, int, int], None]], Conversion], json: Path | None) -> None:
    """Run a conversion under a progress bar, then print its report."""
    signal.signal(signal.SIGTERM, _stop)  # as for Ctrl-C: what is half written goes
    with progress() as bar:
        task = bar.add_task("")

        def say(stage: str, num_done: int, num_total: int) -> None:
            bar.update(task, description=stage, completed=num_done, total=num_total)

        report = run(say)
    console = results()
    for line in report.lines():
        console.print(line, markup=False, soft_wrap=True)
    note(f"written: {report.target}")
    write_json(json, report.as_dict())
