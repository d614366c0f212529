"""``foretell train``: train heads, or a model with its heads, as a recipe says."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from foretell.cli.loading import check_model
from foretell.cli.options import Json, switch
from foretell.cli.output import note, progress, results, write_json
from foretell.cli.targets import check_json_target


def train(
    recipe: Annotated[Path, Parameter(help="TOML file; recipes/ holds examples.")],
    /,
    *,
    resume: Annotated[bool, switch("Go on from the last checkpoint in the recipe's run_dir.")] = False,
    overwrite: Annotated[bool, switch("Replace the adapter and the checkpoints of an earlier run.")] = False,
    json: Json = None,
) -> None:
    """Train heads on a frozen trunk, or trunk and heads together, as a recipe says.

    A frozen trunk gives an adapter folder; a trained one, loaded or from scratch, a model folder with its heads in it.
    Loss, agreement and gradient norms go to metrics.jsonl in the recipe's run_dir, and to TensorBoard. At the end a
    table shows how good the guesses are on held-out documents. Under torchrun every process runs this same command.

    Try:

        foretell train recipes/smollm2-135m-instruct.toml --overwrite
        foretell train recipes/bytes-8.toml
    """
    check_json_target(json, [recipe])
    from foretell.cli.probe import print_depths
    from foretell.training.recipe import NATIVE
    from foretell.training.recipe_file import load_recipe

    loaded = load_recipe(recipe)
    check_json_target(json, [Path(loaded.run_dir) / name for name in ("recipe.json", "metrics.jsonl")])
    if loaded.trunk:
        check_model(loaded.trunk, None if loaded.init_from in ("", NATIVE) else loaded.init_from)

    from transformers.trainer_utils import get_last_checkpoint

    from foretell.training.trainer import train as run

    bar = progress()
    task = bar.add_task("")
    is_main = int(os.environ.get("RANK", "0")) == 0

    def show(stage: str, num_done: int, num_total: int) -> None:
        if not is_main:
            return
        # Only stages that count get a bar, and none stays: the Trainer draws its own.
        if num_total <= 1:
            note(stage if num_done else f"{stage} ...")
            return
        bar.start()
        bar.update(task, description=stage, completed=num_done, total=num_total)
        if num_done >= num_total:
            bar.stop()

    try:
        # The Trainer prints its log lines to standard output, which is for results here.
        with contextlib.redirect_stdout(sys.stderr):
            report = run(loaded, resume=resume, overwrite=overwrite, on_progress=show).as_dict()
    except KeyboardInterrupt:
        if is_main and (last := get_last_checkpoint(loaded.run_dir) if Path(loaded.run_dir).is_dir() else None):
            note(f"stopped; go on from {last} with --resume")
        raise
    finally:
        bar.stop()
    if not is_main:
        return
    steps = f"{report['num_steps']:,} steps"
    if report["resumed_at"]:
        steps += f" ({report['resumed_at']:,} of them done before)"
    loss = "" if report["mean_loss"] is None else f", training loss {report['mean_loss']:.3f}"
    part = report["data"]["training"]
    corpus = f"{part['num_documents']:,} documents of {part['num_tokens']:,} tokens"
    note(f"{steps} over {corpus}, {report['train_s']:.0f} s{loss}: {report['output']}")
    held_out = report["held_out"]
    if held_out.get("depths"):
        print_depths(results(), held_out)
    if held_out.get("loss") is not None:
        per_byte = "" if held_out["bits_per_byte"] is None else f", {held_out['bits_per_byte']:.3f} bits per byte"
        results().print(f"held-out loss of the trunk: {held_out['loss']:.3f} nats per token{per_byte}")
    write_json(json, report)
