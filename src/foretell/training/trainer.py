"""Train as one recipe says: heads on a frozen trunk, or trunk and heads together, with transformers' Trainer."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import torch

from foretell.checkpoints.files import read_json
from foretell.errors import CheckpointError, UsageError
from foretell.training import run_dir as runs
from foretell.training.arguments import computes_in_bf16, training_arguments
from foretell.training.data import Progress, RunData
from foretell.training.evaluate import evaluate
from foretell.training.mtp_trainer import MTPTrainer
from foretell.training.output import claim, write_checkpoint, write_output
from foretell.training.prepare import count_targets, prepare, with_batches_that_fit
from foretell.training.processes import processes
from foretell.training.recipe import Recipe
from foretell.training.report import TrainReport
from foretell.training.rows import RowsDataset, RowStream, collate
from foretell.training.run_log import JsonlMetrics
from foretell.training.sharding import use_outside
from foretell.training.sources import check_sources
from foretell.training.start import starting_cache, starting_heads
from foretell.training.states import StateCache
from foretell.training.streamed_rows import StreamedRows
from foretell.training.training_model import TrainingModel


def train(
    recipe: Recipe, resume: bool = False, overwrite: bool = False, on_progress: Progress | None = None
) -> TrainReport:
    """Run a recipe: read data, train, write an adapter or a model folder to ``recipe.output``.

    ``resume`` goes on from the last checkpoint in ``run_dir``; ``overwrite`` replaces an earlier run and its output.
    ``on_progress(stage, done, total)`` for what comes before the Trainer's own progress bar; 1 of 1 states a fact.
    Started by torchrun or accelerate, every process calls this; the main one alone writes and reports.
    """
    say = on_progress or (lambda stage, done, total: None)
    if resume and overwrite:
        raise UsageError("resume goes on with the run that is there, overwrite begins anew: give one of them")
    try:
        return _train(recipe, resume, overwrite, say)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT):
            raise
        raise CheckpointError(
            f"{error.filename or recipe.run_dir}: cannot be written ({error.strerror}); make room or choose another "
            "run_dir and output, then go on from the last whole checkpoint with --resume"
        ) from error


def _train(recipe: Recipe, resume: bool, overwrite: bool, say: Progress) -> TrainReport:
    checkpoint = claim(recipe, resume, overwrite)
    check_sources(recipe.data)
    processes().wait_for_everyone()  # none may write before all have looked
    if resume and checkpoint is None:
        say(f"no checkpoint in {recipe.run_dir}: training begins anew", 1, 1)
    recipe, trunk, data = prepare(recipe, checkpoint, say)
    targets_by_depth = count_targets(recipe, data)
    recipe = with_batches_that_fit(recipe, data, say)
    joint, run_dir = recipe.train.trunk == "joint", Path(recipe.run_dir)
    run = runs.describe(recipe, recipe.trunk if joint else trunk.fingerprint(), data.fingerprint)
    resumed_at, end = _steps_of(checkpoint)
    if checkpoint:
        _on_main(lambda: runs.go_on(run_dir, run, resumed_at))
    with ExitStack() as stack:
        cache = starting_cache(recipe, trunk, data, say)
        if cache:
            stack.enter_context(closing(cache))
        heads = starting_heads(recipe, trunk, data, cache, checkpoint)
        bf16 = computes_in_bf16(recipe)
        model = TrainingModel(trunk, heads, recipe.objective, train_trunk=joint, bf16=bf16)
        say(_what_is_trained(model), 1, 1)
        report = TrainReport(recipe.output, {}, targets_by_depth, resumed_at, resumed_at)
        if checkpoint and resumed_at >= end:
            say(f"all {end:,} steps are done", 1, 1)
        else:
            trainer = _trainer(recipe, model, data, cache)
            if not checkpoint:  # all else is well: only now may an earlier run go
                _on_main(lambda: runs.begin(run_dir, run))
            started = time.perf_counter()
            result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            report.train_s = time.perf_counter() - started
            report.num_steps, report.mean_loss = trainer.state.global_step, result.training_loss
    report.data = data.counts.as_dict()
    model.eval()
    use_outside(model)
    if not data.held_out:
        say("nothing was held out, so there are no figures to show", 1, 1)
    else:
        say("measuring on held-out documents", 0, 1)
        report.held_out = evaluate(trunk, heads, data.held_out, recipe.data, bf16, language_model=joint)
    if report.num_steps == resumed_at and Path(recipe.output).is_dir():
        return report  # it is there, with the record of the run that made it
    write_output(recipe, model, report, replace_it=overwrite or resume)
    return report


def _on_main(action: Callable[[], None]) -> None:
    """The main process acts; the others go on when it has."""
    state = processes()
    if state.is_main_process:
        action()
    state.wait_for_everyone()


def _steps_of(checkpoint: Path | None) -> tuple[int, int]:
    """(steps done, steps of the whole run) of a checkpoint; (0, 0) without one."""
    if checkpoint is None:
        return 0, 0
    state = read_json(checkpoint / "trainer_state.json")
    return int(state["global_step"]), int(state["max_steps"])


def _what_is_trained(model: TrainingModel) -> str:
    def size(parameters: list[torch.nn.Parameter]) -> str:
        return f"{len(parameters)} tensors ({sum(p.numel() for p in parameters):,} parameters)"

    trunk = list(model.trunk.parameters())
    heads = [] if model.heads is None else [p for p in model.heads.parameters() if p.requires_grad]
    parts = [f"trained: heads {size(heads)}" if heads else ""]
    parts += [f"{'trained' if model.trained_trunk is not None else 'frozen'}: trunk {size(trunk)}"]
    return "; ".join(part for part in parts if part)


def _trainer(recipe: Recipe, model: TrainingModel, data: RunData, cache: StateCache | None) -> MTPTrainer:
    rows, run_dir = data.rows, Path(recipe.run_dir)
    return MTPTrainer(
        model,
        recipe.train,
        lambda folder, is_main: write_checkpoint(model, folder, is_main),
        args=training_arguments(recipe, run_dir, processes().num_processes),
        train_dataset=RowStream(rows)
        if isinstance(rows, StreamedRows)
        else RowsDataset(rows, cache, recipe.train.batch_rows),
        data_collator=collate,
        callbacks=[JsonlMetrics(run_dir / "metrics.jsonl")],
    )
