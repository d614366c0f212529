"""What a run starts from: a trunk loaded, made from scratch, or left by a checkpoint; and heads for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from foretell.checkpoints.adapter import StaleHeadsWarning, load_adapter
from foretell.checkpoints.load import load_trunk
from foretell.checkpoints.native_heads import load_native_heads
from foretell.errors import CheckpointError, UsageError
from foretell.models.build import build_heads
from foretell.models.heads import Heads
from foretell.models.support import decoder_layers
from foretell.models.trunk import Trunk
from foretell.training.corpus_texts import corpus_texts
from foretell.training.data import Progress, RunData
from foretell.training.draft_vocab import choose_draft_vocab, count_tokens
from foretell.training.processes import processes
from foretell.training.recipe import NATIVE, Recipe, TokenizerConfig
from foretell.training.scratch import new_trunk
from foretell.training.states import StateCache, room_for
from foretell.training.streamed_rows import StreamedRows
from foretell.training.tokenizer import make_tokenizer


def starting_trunk(recipe: Recipe, checkpoint: Path | None, dtype: str) -> Trunk:
    """The trunk on its device: frozen in ``dtype``, or in float32 with gradients where it trains."""
    joint = recipe.train.trunk == "joint"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if joint and checkpoint is not None:
        with _or_the_one_before(checkpoint):
            trunk = load_trunk(checkpoint, "float32", device, for_training=True)
    elif recipe.model is not None:
        config = recipe.tokenizer or TokenizerConfig()
        tokenizer = make_tokenizer(config, corpus_texts(recipe.data))
        trunk = new_trunk(recipe.model, tokenizer, recipe.train.seed, name=recipe.output).to(device)
    else:
        trunk = load_trunk(recipe.trunk, "float32" if joint else dtype, device, for_training=joint)
    if joint:
        trunk.train()
        if recipe.train.checkpointing:
            trunk.model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    else:
        trunk.freeze()
    if recipe.train.compile:
        for layer in decoder_layers(trunk, "[train] compile"):
            layer.compile()
    return trunk


def starting_cache(recipe: Recipe, trunk: Trunk, data: RunData, say: Progress) -> StateCache | None:
    """The frozen trunk's states on disk, computed as far as they are not there; None where the recipe wants none."""
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


def starting_heads(
    recipe: Recipe, trunk: Trunk, data: RunData, cache: StateCache | None, checkpoint: Path | None
) -> Heads | None:
    """The heads in float32 with gradients; None where the recipe has none."""
    if recipe.heads is None:
        return None
    if checkpoint is None and recipe.init_from == NATIVE:
        heads = load_native_heads(trunk, torch.float32)
    elif checkpoint is not None or recipe.init_from:
        with warnings.catch_warnings(), _or_the_one_before(checkpoint):
            warnings.simplefilter("ignore", StaleHeadsWarning)  # they are about to be trained for this trunk
            heads = load_adapter(trunk, checkpoint or recipe.init_from, torch.float32)
    else:
        config, draft_ids = recipe.heads, None
        if size := _draft_vocab_size(recipe, trunk):
            draft_ids, coverage = choose_draft_vocab(_token_counts(trunk, data, cache), size)
            extra = {**config.extra, "draft_coverage": coverage}
            config = replace(config, draft_vocab_size=len(draft_ids), extra=extra)
        torch.manual_seed(recipe.train.seed)
        heads = build_heads(trunk, config, None if draft_ids is None else draft_ids.to(trunk.device))
    heads.float().requires_grad_(True).train()
    heads.checkpointing = recipe.train.checkpointing
    return heads


@contextmanager
def _or_the_one_before(checkpoint: Path | None) -> Iterator[None]:
    """Say what to do where a checkpoint to go on from is damaged."""
    try:
        yield
    except CheckpointError as error:
        if checkpoint is None:
            raise
        raise CheckpointError(
            f"{error} Delete {checkpoint} to go on from the checkpoint before, or give --overwrite to begin anew"
        ) from error


def _token_counts(trunk: Trunk, data: RunData, cache: StateCache | None) -> torch.Tensor:
    """(V,) how often each token is a target, or the trunk's choice where that is known."""
    if isinstance(data.rows, StreamedRows):
        raise UsageError(
            "[data] draft_vocab_size is chosen from the whole data, which streaming does not keep; set it to 0, or "
            'storage to "memory" or "cached"'
        )
    counts_V = count_tokens((data.rows.row(r) for r in range(len(data.rows))), trunk.vocab_size)
    if cache is not None and data.packed is not None:
        counts_V += torch.bincount(cache.argmax_RT[data.packed.supervised_RT].long(), minlength=trunk.vocab_size)
    return counts_V


def _draft_vocab_size(recipe: Recipe, trunk: Trunk) -> int:
    """The recipe's; by default 8192, but everything where the output head trains too or the data is not kept."""
    size = recipe.data.draft_vocab_size
    if size == "auto":
        size = 8192 if recipe.train.trunk == "frozen" and recipe.data.storage != "streaming" else 0
    return 0 if size >= trunk.vocab_size else size
