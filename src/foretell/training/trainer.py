"""Train heads on a frozen trunk with transformers' Trainer, as one recipe says."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model

from foretell.checkpoints.adapter import check_target, load_adapter, read_adapter_config, save_adapter
from foretell.checkpoints.load import load_trunk
from foretell.errors import DataError, UsageError
from foretell.models.sequential import SequentialHeads
from foretell.models.trunk import Trunk
from foretell.training import run_dir as runs
from foretell.training.arguments import computes_in_bf16, training_arguments
from foretell.training.data import PackedRows, choose_draft_vocab, pack, read_documents, split_held_out
from foretell.training.heads_trainer import HeadsOnFrozenTrunk, HeadsTrainer, JsonlMetrics, RowsDataset, collate
from foretell.training.objective import count_valid
from foretell.training.probe import probe_documents
from foretell.training.recipe import Recipe
from foretell.training.recipe_file import check_weights
from foretell.training.states import StateCache, room_for

Progress = Callable[[str, int, int], None]


@dataclass
class TrainReport:
    """What a run did and how good the heads are on its held-out documents.

    ``num_steps`` are those of the whole run, the first ``resumed_at`` of them made before. ``train_s`` and
    ``mean_loss`` are of the others alone; the loss is None where there were none. ``num_targets_by_depth``: tokens
    that each depth learns to predict, once over the data.
    """

    output: str
    num_train_tokens: int
    num_targets_by_depth: list[int]
    num_steps: int
    resumed_at: int
    train_s: float
    mean_loss: float | None
    held_out: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def train(
    recipe: Recipe, resume: bool = False, overwrite: bool = False, on_progress: Progress | None = None
) -> TrainReport:
    """Run a recipe: read data, train the heads, write the adapter to ``recipe.output``.

    ``resume`` goes on from the last checkpoint in ``run_dir``; ``overwrite`` replaces an earlier run and its output.
    ``on_progress(stage, done, total)`` for what comes before the Trainer's own progress bar; 1 of 1 states a fact.
    """
    say = on_progress or (lambda stage, done, total: None)
    output, run_dir = Path(recipe.output), Path(recipe.run_dir)
    if output.exists() and not (overwrite or resume):
        raise UsageError(f"output {output} exists; choose another output, or give --overwrite to replace it")
    check_target(output, overwrite or resume)
    checkpoint = runs.find_checkpoint(run_dir, output, resume, overwrite)
    if resume and checkpoint is None:
        say(f"no checkpoint in {run_dir}: training begins anew", 1, 1)
    if recipe.init_from:
        recipe = replace(recipe, heads=read_adapter_config(recipe.init_from).heads)
        check_weights(recipe.objective, recipe.heads.num_depths, recipe.init_from)
    bf16 = computes_in_bf16(recipe)
    dtype = recipe.dtype if recipe.dtype != "auto" else ("bfloat16" if bf16 else "float32")
    say("loading the trunk", 0, 1)
    trunk = load_trunk(recipe.trunk, dtype=dtype, device="cuda" if torch.cuda.is_available() else "cpu")
    trunk.freeze()
    say("reading data", 0, 1)
    documents, held_out = split_held_out(read_documents(recipe.data, trunk), recipe.data.held_out)
    rows = pack(documents, recipe.data.max_length)
    targets_K = count_valid(rows.doc_ids_RT, rows.supervised_RT, recipe.heads.num_depths)
    if not targets_K.any():
        raise DataError(
            "nothing to learn: no document has a token to predict at any depth",
            ", ".join(recipe.data.files + recipe.data.texts),
        )
    resumed_at, end = _steps_of(checkpoint)
    run = runs.describe(recipe, trunk, rows)
    if checkpoint:
        runs.go_on(run_dir, run, resumed_at)
    else:
        runs.begin(run_dir, run)
    with ExitStack() as stack:
        if cache := _cache(recipe, trunk, rows, run_dir, say):
            stack.enter_context(closing(cache))
        heads = _heads(recipe, trunk, rows, cache)
        heads.float().requires_grad_(True).train()
        if heads.config.final_norm == "trunk":  # not stored with the heads, so it must stay as it is
            for module in heads.modules_by_depth:
                module.norm.requires_grad_(False)
        say(_what_is_trained(heads), 1, 1)
        model = HeadsOnFrozenTrunk(heads, recipe.objective)
        report = TrainReport(str(output), rows.num_tokens, targets_K.tolist(), resumed_at, resumed_at, 0.0, None)
        if checkpoint and resumed_at >= end:
            say(f"all {end:,} steps are done", 1, 1)
            load_model(model, checkpoint / "model.safetensors", device=str(trunk.device))
        else:
            trainer = HeadsTrainer(
                model=model,
                args=training_arguments(recipe, run_dir, bf16),
                train_dataset=RowsDataset(rows, cache),
                data_collator=collate,
                callbacks=[JsonlMetrics(run_dir / "metrics.jsonl")],
            )
            started = time.perf_counter()
            result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            report.train_s = time.perf_counter() - started
            report.num_steps, report.mean_loss = trainer.state.global_step, result.training_loss
    heads.eval()
    if held_out:
        say("probing held-out documents", 0, 1)
        with torch.autocast(trunk.device.type, dtype=torch.bfloat16, enabled=bf16):
            probed = probe_documents(heads, held_out[:400], recipe.data.max_length)
        report.held_out = probed.as_dict()
    if report.num_steps == resumed_at and output.is_dir():
        return report  # the adapter is there, with the record of the run that made it
    summary = {**report.as_dict(), "recipe": asdict(recipe)}
    save_adapter(heads, output, training=summary, overwrite=overwrite or resume)
    return report


def _steps_of(checkpoint: Path | None) -> tuple[int, int]:
    """(steps done, steps of the whole run) of a checkpoint; (0, 0) without one."""
    if checkpoint is None:
        return 0, 0
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    return int(state["global_step"]), int(state["max_steps"])


def _what_is_trained(heads: SequentialHeads) -> str:
    trained = [p for p in heads.parameters() if p.requires_grad]
    frozen = [p for p in heads.trunk.parameters() if not p.requires_grad]
    return (
        f"trained: {len(trained)} tensors of the heads ({sum(p.numel() for p in trained):,} parameters); "
        f"frozen: {len(frozen)} tensors of the trunk ({sum(p.numel() for p in frozen):,} parameters)"
    )


def _heads(recipe: Recipe, trunk: Trunk, rows: PackedRows, cache: StateCache | None) -> SequentialHeads:
    if recipe.init_from:
        loaded = load_adapter(trunk, recipe.init_from)
        assert isinstance(loaded, SequentialHeads)
        return loaded
    config, draft_ids = recipe.heads, None
    if size := recipe.data.draft_vocab_size:
        counts_V = torch.bincount(rows.token_ids_RT[rows.supervised_RT].long(), minlength=trunk.vocab_size)
        if cache is not None:
            counts_V += torch.bincount(cache.argmax_RT[rows.supervised_RT].long(), minlength=trunk.vocab_size)
        draft_ids, coverage = choose_draft_vocab(counts_V, size)
        config = replace(config, draft_vocab_size=len(draft_ids), extra={**config.extra, "draft_coverage": coverage})
    torch.manual_seed(recipe.train.seed)
    return SequentialHeads(trunk, config, None if draft_ids is None else draft_ids.to(trunk.device))


def _cache(recipe: Recipe, trunk: Trunk, rows: PackedRows, run_dir: Path, say: Progress) -> StateCache | None:
    wanted, folder, size = recipe.train.cache_states, run_dir / "cache", StateCache.num_bytes(trunk, rows)
    if wanted == "auto":
        wanted = recipe.train.epochs > 1 and room_for(folder, size)
    if not wanted:
        return None
    if not room_for(folder, size, reserve=False):
        raise UsageError(
            f"[train] cache_states is true, and the states take {size / 1e9:.1f} GB, which the disk of {run_dir} does "
            'not have free; give cache_states = "auto" or false, or a run_dir on another disk'
        )
    cache = StateCache(folder, trunk, rows)
    cache.fill(on_progress=lambda done, total: say("computing trunk states", done, total))
    return cache
