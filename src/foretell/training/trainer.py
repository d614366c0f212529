"""Train as one recipe says: heads on a frozen trunk, or trunk and heads together, with transformers' Trainer."""

from __future__ import annotations

import errno
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import torch

from foretell.checkpoints.adapter import read_adapter_config
from foretell.checkpoints.files import read_json
from foretell.checkpoints.native_heads import native_config
from foretell.config import HeadsConfig
from foretell.errors import CheckpointError, DataError, UsageError
from foretell.models.trunk import Trunk
from foretell.training import run_dir as runs
from foretell.training.arguments import computes_in_bf16, training_arguments
from foretell.training.data import Progress, RunData, read_data
from foretell.training.evaluate import evaluate
from foretell.training.mtp_trainer import MTPTrainer
from foretell.training.notes import notes
from foretell.training.objective_checks import check_weights
from foretell.training.output import claim, write_checkpoint, write_output
from foretell.training.packing import Row
from foretell.training.processes import processes
from foretell.training.recipe import NATIVE, Recipe
from foretell.training.report import TrainReport
from foretell.training.rows import RowsDataset, RowStream, collate
from foretell.training.run_log import JsonlMetrics
from foretell.training.sharding import use_outside
from foretell.training.sources import check_sources
from foretell.training.start import starting_cache, starting_heads, starting_trunk
from foretell.training.states import StateCache
from foretell.training.streamed_rows import StreamedRows
from foretell.training.targets import count_valid
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
    recipe, trunk, data = _prepare(recipe, checkpoint, say)
    targets_by_depth = _targets(recipe, data)
    recipe = _with_batches_that_fit(recipe, data, say)
    resumed_at, end = _steps_of(checkpoint)
    _open_run(recipe, trunk, data, resumed_at if checkpoint else None, begin=False)
    with ExitStack() as stack:
        cache = starting_cache(recipe, trunk, data, say)
        if cache:
            stack.enter_context(closing(cache))
        heads = starting_heads(recipe, trunk, data, cache, checkpoint)
        joint, bf16 = recipe.train.trunk == "joint", computes_in_bf16(recipe)
        model = TrainingModel(trunk, heads, recipe.objective, train_trunk=joint, bf16=bf16)
        say(_what_is_trained(model), 1, 1)
        report = TrainReport(recipe.output, {}, targets_by_depth, resumed_at, resumed_at)
        if checkpoint and resumed_at >= end:
            say(f"all {end:,} steps are done", 1, 1)
        else:
            trainer = _trainer(recipe, model, data, cache)
            _open_run(recipe, trunk, data, resumed_at if checkpoint else None, begin=True)
            started = time.perf_counter()
            result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            report.train_s = time.perf_counter() - started
            report.num_steps, report.mean_loss = trainer.state.global_step, result.training_loss
    report.data = data.counts.as_dict()
    model.eval()
    use_outside(model)
    if data.held_out:
        say("measuring on held-out documents", 0, 1)
        report.held_out = evaluate(trunk, heads, data.held_out, recipe.data, bf16, language_model=joint)
    if report.num_steps == resumed_at and Path(recipe.output).is_dir():
        return report  # it is there, with the record of the run that made it
    write_output(recipe, model, report, replace_it=overwrite or resume)
    return report


def _prepare(recipe: Recipe, checkpoint: Path | None, say: Progress) -> tuple[Recipe, Trunk, RunData]:
    """Trunk and data, and the recipe with what they settle."""
    if recipe.init_from and recipe.init_from != NATIVE:
        recipe = _with_heads(recipe, read_adapter_config(recipe.init_from).heads)
    dtype = recipe.dtype if recipe.dtype != "auto" else ("bfloat16" if computes_in_bf16(recipe) else "float32")
    say("loading the trunk" if recipe.trunk else "making tokenizer and trunk", 0, 1)
    trunk = starting_trunk(recipe, checkpoint, dtype)
    if recipe.data.max_length > trunk.max_positions:
        raise UsageError(
            f"[data] max_length is {recipe.data.max_length}; allowed: at most {trunk.max_positions}, the trunk's window"
        )
    if recipe.init_from == NATIVE:
        recipe = _with_heads(recipe, native_config(trunk))
    for note in notes(recipe, trunk):
        say(note, 1, 1)
    if trunk.is_recurrent and recipe.data.packing:
        recipe = replace(recipe, data=replace(recipe.data, packing=False))
        say("layers carry state from token to token: each document gets a row of its own (packing = false)", 1, 1)
    say("reading data", 0, 1)
    folder, from_scratch = Path(recipe.run_dir) / "data", recipe.model is not None
    return recipe, trunk, read_data(recipe.data, trunk, folder, say, from_scratch, recipe.train.seed)


def _with_heads(recipe: Recipe, heads: HeadsConfig) -> Recipe:
    """The recipe with the heads that its ``init_from`` turned out to hold."""
    check_weights(recipe.objective, heads.num_depths, recipe.init_from)
    return replace(recipe, heads=heads)


def _targets(recipe: Recipe, data: RunData) -> list[int]:
    """Tokens that each depth learns to predict, once over the data, the trunk's own first; empty where it streams."""
    if isinstance(data.rows, StreamedRows):
        return []
    num_depths = 0 if recipe.heads is None else recipe.heads.num_depths
    zero = torch.zeros(num_depths + 1, dtype=torch.long)
    counts = sum((_count(data.rows.row(r), num_depths) for r in range(len(data.rows))), zero).tolist()
    learnt = range(0 if recipe.train.trunk == "joint" else 1, len(counts))
    if empty := [depth for depth in learnt if not counts[depth]]:
        raise DataError(
            "nothing to learn: every document is too short, or holds no token to predict, at depth "
            + ", ".join(map(str, empty)),
            ", ".join(recipe.data.files + recipe.data.texts),
        )
    return counts


def _with_batches_that_fit(recipe: Recipe, data: RunData, say: Progress) -> Recipe:
    """A batch holds no more rows than there are."""
    if isinstance(data.rows, StreamedRows):
        return recipe
    deal = processes().num_processes
    most = -(-len(data.rows) // deal) * deal
    if recipe.train.batch_rows <= most:
        return recipe
    say(f"the data fills {len(data.rows):,} rows: batch_rows = {most} in place of {recipe.train.batch_rows}", 1, 1)
    return replace(recipe, train=replace(recipe.train, batch_rows=most))


def _count(row: Row, num_depths: int) -> torch.Tensor:
    return count_valid(row["doc_ids"][None], row["supervised"][None], num_depths)


def _open_run(recipe: Recipe, trunk: Trunk, data: RunData, resumed_at: int | None, begin: bool) -> None:
    """First see that a run that goes on is the same one; when all else is well, clear the way for a new one."""
    joint = recipe.train.trunk == "joint"
    run = runs.describe(recipe, recipe.trunk if joint else trunk.fingerprint(), data.fingerprint)
    state = processes()
    if state.is_main_process and resumed_at is not None and not begin:
        runs.go_on(Path(recipe.run_dir), run, resumed_at)
    elif state.is_main_process and resumed_at is None and begin:
        runs.begin(Path(recipe.run_dir), run)
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
