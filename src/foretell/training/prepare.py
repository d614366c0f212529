"""Trunk and data of a run, and what they settle in its recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from foretell.checkpoints.adapter import read_adapter_config
from foretell.checkpoints.native_heads import native_config
from foretell.config import HeadsConfig
from foretell.errors import DataError, UsageError
from foretell.models.trunk import Trunk
from foretell.training.arguments import computes_in_bf16
from foretell.training.data import Progress, RunData, read_data
from foretell.training.notes import notes
from foretell.training.objective_checks import check_weights
from foretell.training.packing import Row
from foretell.training.processes import processes
from foretell.training.recipe import NATIVE, Recipe
from foretell.training.start import starting_trunk
from foretell.training.streamed_rows import StreamedRows
from foretell.training.targets import count_valid


def prepare(recipe: Recipe, checkpoint: Path | None, say: Progress) -> tuple[Recipe, Trunk, RunData]:
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
        heads = native_config(trunk) if checkpoint is None else read_adapter_config(checkpoint).heads
        recipe = _with_heads(recipe, heads)
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


def count_targets(recipe: Recipe, data: RunData) -> list[int]:
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


def with_batches_that_fit(recipe: Recipe, data: RunData, say: Progress) -> Recipe:
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
