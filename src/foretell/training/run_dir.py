"""The run folder: checkpoints, the recipe that made them, metrics.jsonl. A run goes on under the same recipe only."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping, Set
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from transformers.trainer_utils import get_last_checkpoint

from foretell.checkpoints.adapter_config import TENSOR_FILE
from foretell.checkpoints.files import read_json
from foretell.errors import CheckpointError, UsageError
from foretell.training.recipe import SECTIONS, Recipe

_NEEDED = ("optimizer.pt", "scheduler.pt", "trainer_state.json")
_MAY_CHANGE = {
    "train": ("save_steps", "keep_checkpoints", "log_steps", "checkpointing", "compile", "sharding"),
    "data": ("files", "texts", "held_out_files"),
}
"""Settings without an effect on what is learnt. Files may have moved, where rows are in memory: then ``describe`` looks
at what is in them. Of cached and streamed ones it knows path, size and time of change.
"""


def find_checkpoint(recipe: Recipe, resume: bool, overwrite: bool) -> Path | None:
    """Where to go on from, None for a new run. Checkpoints of an earlier run are never mixed with those of a new one.

    Raises UsageError where neither ``resume`` nor ``overwrite`` says what to do with what is there, or there is
    nothing to resume, and CheckpointError naming the files that the last checkpoint lacks.
    """
    run_dir, output = Path(recipe.run_dir), Path(recipe.output)
    last = get_last_checkpoint(str(run_dir)) if run_dir.exists() else None
    if resume:
        if last is None and output.exists():
            raise UsageError(
                f"run_dir {run_dir} holds no checkpoint to resume from, and output {output} exists; "
                "give --overwrite to begin anew and replace it"
            )
        weights = [TENSOR_FILE] if recipe.heads is not None else []
        weights += ["config.json"] if recipe.train.trunk == "joint" else []
        if last and (missing := [name for name in (*weights, *_NEEDED) if not (Path(last) / name).is_file()]):
            raise CheckpointError(
                f"{last}: {', '.join(missing)} missing, so the run cannot go on as it was; "
                "delete this folder to go on from the one before, or give --overwrite to begin anew"
            )
        return Path(last) if last else None
    if last and not overwrite:
        raise UsageError(
            f"run_dir {run_dir} holds checkpoints of an earlier run; go on from them with --resume, "
            "or give --overwrite to begin anew"
        )
    return None


def describe(recipe: Recipe, trunk: str, rows: str) -> dict[str, Any]:
    """What makes a run the same run, by key: what is trained, how, on which trunk and which rows (fingerprints)."""
    found: dict[str, Any] = {"trunk": trunk, "init_from": recipe.init_from}
    for section in SECTIONS:
        settings = getattr(recipe, section)
        for name, value in ({} if settings is None else asdict(settings)).items():
            if name not in _MAY_CHANGE.get(section, ()):
                found[f"[{section}] {name}"] = value
    found["the documents"] = rows
    return json.loads(json.dumps(found))


def begin(run_dir: Path, run: dict[str, Any]) -> None:
    """Clear what an earlier run left, its cached states excepted, and write recipe.json."""
    run_dir.mkdir(parents=True, exist_ok=True)
    for folder in run_dir.glob("checkpoint-*"):
        shutil.rmtree(folder)
    (run_dir / "metrics.jsonl").unlink(missing_ok=True)
    shutil.rmtree(run_dir / "runs", ignore_errors=True)  # TensorBoard's
    _replace(run_dir / "recipe.json", json.dumps(run, indent=2) + "\n")


def go_on(run_dir: Path, run: dict[str, Any], num_steps: int) -> None:
    """Check that ``run`` is the one begun here, and drop metrics of steps after ``num_steps``: they come again.

    A setting that is newer than the run had its default. Raises UsageError naming every key that differs,
    CheckpointError where recipe.json is missing.
    """
    path = run_dir / "recipe.json"
    if not path.is_file():
        raise CheckpointError(
            f"{path}: missing, so nobody knows what these checkpoints were made with; give --overwrite to begin anew"
        )
    begun = read_json(path)
    begun = _newer_defaults(begun, run.keys() - begun.keys()) | begun
    differ = [
        f"{name} {run.get(name)!r} (was {begun.get(name)!r})"
        for name in sorted(begun.keys() | run.keys())
        if begun.get(name) != run.get(name)
    ]
    if differ:
        raise UsageError(
            f"the run in {run_dir} was begun with another recipe: {', '.join(differ)}; "
            "change it back to go on, or give --overwrite to begin anew"
        )
    metrics = run_dir / "metrics.jsonl"
    if metrics.exists():
        lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
        _replace(metrics, "".join(line for line in lines if _step_of(line) <= num_steps))


def _newer_defaults(begun: Mapping[str, Any], names: Set[str]) -> dict[str, Any]:
    """Defaults of those of ``names`` that are settings of a section which ``begun`` has."""
    found = {}
    for section, kind in SECTIONS.items():
        if not any(name.startswith(f"[{section}] ") for name in begun):
            continue
        for one in fields(kind):
            name = f"[{section}] {one.name}"
            if name in names and one.default_factory is not MISSING:
                found[name] = one.default_factory()
            elif name in names and one.default is not MISSING:
                found[name] = one.default
    return json.loads(json.dumps(found))


def _step_of(line: str) -> float:
    """The step of a whole line of metrics; infinite for a torn one."""
    try:
        return float(json.loads(line)["step"]) if line.endswith("\n") else math.inf
    except (ValueError, KeyError, TypeError):
        return math.inf


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
