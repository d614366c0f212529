"""Train as one recipe says: heads on a frozen trunk, or trunk and heads together, with transformers' Trainer."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from pathlib import Path

import torch

from foretell.checkpoints.adapter import check_target, read_adapter_config, save_adapter, write_adapter
from foretell.checkpoints.files import read_json
from foretell.checkpoints.model_folder import check_model_target, save_model, write_model
from foretell.errors import DataError, UsageError
from foretell.models.trunk import Trunk
from foretell.training import run_dir as runs
from foretell.training.arguments import check_batch_rows, computes_in_bf16, training_arguments
from foretell.training.data import RunData, read_data
from foretell.training.evaluate import evaluate
from foretell.training.mtp_trainer import JsonlMetrics, MTPTrainer
from foretell.training.notes import notes
from foretell.training.objective_checks import check_weights
from foretell.training.packing import Row
from foretell.training.processes import processes
from foretell.training.recipe import Recipe
from foretell.training.report import TrainReport
from foretell.training.rows import RowsDataset, RowStream, collate
from foretell.training.sharding import use_outside
from foretell.training.start import starting_heads, starting_trunk
from foretell.training.states import StateCache, room_for
from foretell.training.streamed_rows import StreamedRows
from foretell.training.targets import count_valid
from foretell.training.training_model import TrainingModel

Progress = Callable[[str, int, int], None]


def train(
    recipe: Recipe, resume: bool = False, overwrite: bool = False, on_progress: Progress | None = None
) -> TrainReport:
    """Run a recipe: read data, train, write an adapter or a model folder to ``recipe.output``.

    ``resume`` goes on from the last checkpoint in ``run_dir``; ``overwrite`` replaces an earlier run and its output.
    ``on_progress(stage, done, total)`` for what comes before the Trainer's own progress bar; 1 of 1 states a fact.
    Started by torchrun or accelerate, every process calls this; the main one alone writes and reports.
    """
    say = on_progress or (lambda stage, done, total: None)
    checkpoint = _claim(recipe, resume, overwrite)
    processes().wait_for_everyone()  # none may write before all have looked
    if resume and checkpoint is None:
        say(f"no checkpoint in {recipe.run_dir}: training begins anew", 1, 1)
    recipe, trunk, data = _prepare(recipe, checkpoint, say)
    targets_by_depth = _targets(recipe, data)
    resumed_at, end = _steps_of(checkpoint)
    _open_run(recipe, trunk, data, resumed_at if checkpoint else None, begin=False)
    with ExitStack() as stack:
        cache = _cache(recipe, trunk, data, say)
        if cache:
            stack.enter_context(closing(cache))
        heads = starting_heads(recipe, trunk, data, cache, checkpoint)
        joint, bf16 = recipe.train.trunk == "joint", computes_in_bf16(recipe)
        model = TrainingModel(trunk, heads, recipe.objective, train_trunk=joint, bf16=bf16)
        say(_what_is_trained(model), 1, 1)
        report = TrainReport(recipe.output, data.counts.as_dict(), targets_by_depth, resumed_at, resumed_at)
        if checkpoint and resumed_at >= end:
            say(f"all {end:,} steps are done", 1, 1)
        else:
            trainer = _trainer(recipe, model, data, cache)
            _open_run(recipe, trunk, data, resumed_at if checkpoint else None, begin=True)
            started = time.perf_counter()
            result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            report.train_s = time.perf_counter() - started
            report.num_steps, report.mean_loss = trainer.state.global_step, result.training_loss
    model.eval()
    use_outside(model)
    if data.held_out:
        say("measuring on held-out documents", 0, 1)
        report.held_out = evaluate(trunk, heads, data.held_out, recipe.data, bf16, language_model=joint)
    if report.num_steps == resumed_at and Path(recipe.output).is_dir():
        return report  # it is there, with the record of the run that made it
    _write_output(recipe, model, report, replace_it=overwrite or resume)
    return report


def _prepare(recipe: Recipe, checkpoint: Path | None, say: Progress) -> tuple[Recipe, Trunk, RunData]:
    """Trunk and data, and the recipe with what they settle."""
    if recipe.init_from:
        recipe = replace(recipe, heads=read_adapter_config(recipe.init_from).heads)
        assert recipe.heads is not None
        check_weights(recipe.objective, recipe.heads.num_depths, recipe.init_from)
    dtype = recipe.dtype if recipe.dtype != "auto" else ("bfloat16" if computes_in_bf16(recipe) else "float32")
    say("loading the trunk" if recipe.trunk else "making tokenizer and trunk", 0, 1)
    trunk = starting_trunk(recipe, checkpoint, dtype)
    if recipe.data.max_length > trunk.max_positions:
        raise UsageError(
            f"[data] max_length is {recipe.data.max_length}; allowed: at most {trunk.max_positions}, the trunk's window"
        )
    for note in notes(recipe, trunk):
        say(note, 1, 1)
    if trunk.is_recurrent and recipe.data.packing:
        recipe = replace(recipe, data=replace(recipe.data, packing=False))
        say("layers carry state from token to token: each document gets a row of its own (packing = false)", 1, 1)
    say("reading data", 0, 1)
    folder, from_scratch = Path(recipe.run_dir) / "data", recipe.model is not None
    return recipe, trunk, read_data(recipe.data, trunk, folder, say, from_scratch, recipe.train.seed)


def _claim(recipe: Recipe, resume: bool, overwrite: bool) -> Path | None:
    """The checkpoint to go on from; refuses what is in the way of output and run folder before any work."""
    output = Path(recipe.output)
    if output.exists() and not (overwrite or resume):
        raise UsageError(f"output {output} exists; choose another output, or give --overwrite to replace it")
    check = check_model_target if recipe.train.trunk == "joint" else check_target
    check(output, overwrite or resume)
    check_batch_rows(recipe, processes().num_processes)
    return runs.find_checkpoint(recipe, resume, overwrite)


def _targets(recipe: Recipe, data: RunData) -> list[int]:
    """Tokens that each depth learns to predict, once over the data, the trunk's own first; empty where it streams."""
    if isinstance(data.rows, StreamedRows):
        return []
    num_depths = 0 if recipe.heads is None else recipe.heads.num_depths
    counts_R = [_count(data.rows.row(r), num_depths) for r in range(len(data.rows))]
    counts = torch.stack(counts_R).sum(0).tolist() if counts_R else [0]
    if not any(counts if recipe.train.trunk == "joint" else counts[1:]):
        raise DataError(
            "nothing to learn: no document has a token to predict at any depth",
            ", ".join(recipe.data.files + recipe.data.texts),
        )
    return counts


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
        lambda folder, is_main: _write_checkpoint(model, folder, is_main),
        args=training_arguments(recipe, run_dir, processes().num_processes),
        train_dataset=RowStream(rows)
        if isinstance(rows, StreamedRows)
        else RowsDataset(rows, cache, recipe.train.batch_rows),
        data_collator=collate,
        callbacks=[JsonlMetrics(run_dir / "metrics.jsonl")],
    )


def _write_checkpoint(model: TrainingModel, folder: Path, is_main: bool) -> None:
    """Weights in float32, as a folder that ``foretell.load`` reads: a model with its heads, or an adapter."""
    if is_main:
        folder.mkdir(parents=True, exist_ok=True)
    if model.trained_trunk is not None:
        write_model(model.trunk, model.heads, folder, dtype=torch.float32, is_main=is_main)
    elif model.heads is not None:
        write_adapter(model.heads, folder, dtype=torch.float32, is_main=is_main)


def _write_output(recipe: Recipe, model: TrainingModel, report: TrainReport, replace_it: bool) -> None:
    """The main process writes; the others only hand over their parts of split weights."""
    summary = {**report.as_dict(), "recipe": asdict(recipe)}
    state = processes()
    if not state.is_main_process:
        _write_checkpoint(model, Path(recipe.output), is_main=False)
    elif model.trained_trunk is not None:
        dtype = None if recipe.dtype == "auto" else getattr(torch, recipe.dtype)
        save_model(model.trunk, model.heads, recipe.output, summary, dtype=dtype, overwrite=replace_it)
    elif model.heads is not None:
        save_adapter(model.heads, recipe.output, training=summary, overwrite=replace_it)
    state.wait_for_everyone()


def _cache(recipe: Recipe, trunk: Trunk, data: RunData, say: Progress) -> StateCache | None:
    wanted, folder = recipe.train.cache_states, Path(recipe.run_dir) / "cache"
    if not wanted or recipe.train.trunk == "joint":
        return None
    several = processes().num_processes > 1
    below = recipe.heads is not None and recipe.heads.hidden_source == "below"
    if data.packed is None or several or below:
        if wanted == "auto":
            return None
        why = (
            "data is streamed" if data.packed is None else "several processes train" if several else "heads read below"
        )
        raise UsageError(f'[train] cache_states is true, which does not go where {why}; give "auto" or false')
    size = StateCache.num_bytes(trunk, data.packed)
    if wanted == "auto" and not (recipe.train.epochs > 1 and room_for(folder, size)):
        return None
    if not room_for(folder, size, reserve=False):
        raise UsageError(
            f"[train] cache_states is true, and the states take {size / 1e9:.1f} GB, which the disk of {folder} does "
            'not have free; give cache_states = "auto" or false, or a run_dir on another disk'
        )
    cache = StateCache(folder, trunk, data.packed)
    cache.fill(on_progress=lambda done, total: say("computing trunk states", done, total))
    return cache
