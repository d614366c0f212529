"""Where a run writes: what is in the way is refused before any work, and weights come out as folders that load."""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch

from foretell.checkpoints.adapter import check_target, save_adapter, write_adapter
from foretell.checkpoints.model_folder import check_model_target, save_model, write_model
from foretell.errors import UsageError
from foretell.training import run_dir as runs
from foretell.training.arguments import check_batch_rows
from foretell.training.processes import processes
from foretell.training.recipe import NATIVE, Recipe
from foretell.training.report import TrainReport
from foretell.training.training_model import TrainingModel


def claim(recipe: Recipe, resume: bool, overwrite: bool) -> Path | None:
    """The checkpoint to go on from, None for a new run; refuses what stands in the way of output and run folder."""
    output, run_dir = Path(recipe.output), Path(recipe.run_dir)
    _refuse_same_folders(recipe)
    check = check_model_target if recipe.train.trunk == "joint" else check_target
    check(output, overwrite=True)  # what is no output of ours, --overwrite would not touch either
    if output.exists() and not (overwrite or resume):
        raise UsageError(f"output {output} exists; choose another output, or give --overwrite to replace it")
    check_batch_rows(recipe, processes().num_processes)
    for name, folder in (("output", output.parent), ("run_dir", run_dir)):
        _check_writable(name, folder)
    return runs.find_checkpoint(recipe, resume, overwrite)


def _refuse_same_folders(recipe: Recipe) -> None:
    """Nothing that the run reads, and not its own checkpoints, may be what it replaces at its end."""
    output = Path(recipe.output).resolve()
    for name in ("trunk", "init_from", "run_dir"):
        if (value := getattr(recipe, name)) not in ("", NATIVE) and Path(value).resolve() == output:
            raise UsageError(f"output {recipe.output} is the {name} too; choose another output")


def _check_writable(name: str, folder: Path) -> None:
    """Raise UsageError unless files can be made in ``folder``, or in the nearest one there is above it."""
    nearest = next(path for path in (folder, *folder.resolve().parents) if os.path.lexists(path))
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise UsageError(f"{name}: {nearest} cannot be written to ({error.strerror}); choose another") from error


def write_checkpoint(model: TrainingModel, folder: Path, is_main: bool) -> None:
    """Weights in float32, as a folder that ``foretell.load`` reads: a model with its heads, or an adapter."""
    if is_main:
        folder.mkdir(parents=True, exist_ok=True)
    if model.trained_trunk is not None:
        write_model(model.trunk, model.heads, folder, dtype=torch.float32, is_main=is_main)
    elif model.heads is not None:
        write_adapter(model.heads, folder, dtype=torch.float32, is_main=is_main)


def write_output(recipe: Recipe, model: TrainingModel, report: TrainReport, replace_it: bool) -> None:
    """The main process writes; the others only hand over their parts of split weights."""
    summary = {**report.as_dict(), "recipe": asdict(recipe)}
    state = processes()
    if not state.is_main_process:
        write_checkpoint(model, Path(recipe.output), is_main=False)
    elif model.trained_trunk is not None:
        dtype = None if recipe.dtype == "auto" else getattr(torch, recipe.dtype)
        save_model(model.trunk, model.heads, recipe.output, summary, dtype=dtype, overwrite=replace_it)
    elif model.heads is not None:
        save_adapter(model.heads, recipe.output, training=summary, overwrite=replace_it)
    state.wait_for_everyone()
