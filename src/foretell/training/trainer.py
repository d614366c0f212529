"""Train heads on a frozen trunk with transformers' Trainer, as one recipe says."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from foretell.checkpoints.adapter import check_target, load_adapter, save_adapter
from foretell.checkpoints.load import load_trunk
from foretell.errors import DataError, UsageError
from foretell.models.decoder import States
from foretell.models.heads import Heads
from foretell.models.sequential import SequentialHeads
from foretell.models.trunk import Trunk
from foretell.training.data import PackedRows, choose_draft_vocab, pack, read_documents, split_held_out
from foretell.training.objective import Batch, count_valid, heads_loss
from foretell.training.probe import probe_documents
from foretell.training.recipe import ObjectiveConfig, Recipe
from foretell.training.states import StateCache, room_for, trunk_outputs

Progress = Callable[[str, int, int], None]


@dataclass
class TrainReport:
    """What a run did and how good the heads are on its held-out documents."""

    output: str
    num_train_tokens: int
    num_steps: int
    train_s: float
    mean_loss: float
    held_out: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


class HeadsOnFrozenTrunk(nn.Module):
    """Heads with their loss; the trunk is borrowed, so no optimizer and no checkpoint ever holds a trunk tensor."""

    accepts_loss_kwargs = True

    def __init__(self, heads: Heads, objective: ObjectiveConfig) -> None:
        super().__init__()
        self.heads = heads
        self.objective = objective
        self.sums: dict[str, float] = {}

    def forward(
        self, num_items_in_batch: torch.Tensor | None = None, **inputs: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Loss of one micro-batch; ``num_items_in_batch`` holds the valid positions per depth of the whole window."""
        batch = self._batch(inputs)
        num_depths = self.heads.config.num_depths
        if num_items_in_batch is None:
            num_items_in_batch = count_valid(batch.doc_ids_BT, batch.supervised_BT, num_depths)
        loss, parts = heads_loss(self.heads, batch, self.objective, num_items_in_batch)
        for k, part in enumerate(parts, start=1):
            self._add(f"loss_{k}", float(part.loss_sum.detach()), part.num_valid)
            self._add(f"agreement_{k}", float(part.num_agreed), part.num_valid)
        return {"loss": loss}

    def take_metrics(self) -> dict[str, float]:
        """Means since the last call: loss and agreement with the trunk's argmax, per depth."""
        names = sorted({name.partition("/")[0] for name in self.sums})
        means = {n: self.sums[n + "/sum"] / max(self.sums[n + "/count"], 1) for n in names}
        self.sums = {}
        return means

    def _add(self, name: str, value: float, count: int) -> None:
        self.sums[name + "/sum"] = self.sums.get(name + "/sum", 0.0) + value
        self.sums[name + "/count"] = self.sums.get(name + "/count", 0.0) + count

    def _batch(self, inputs: dict[str, torch.Tensor]) -> Batch:
        token_ids, doc_ids = inputs["token_ids"].long(), inputs["doc_ids"].long()
        trunk = self.heads.trunk
        if "states" in inputs:
            pre = inputs["states"]
            with torch.no_grad():
                states = States(pre, trunk.final_norm(pre))
            argmax = inputs["argmax"].long()
        else:
            states, argmax = trunk_outputs(trunk, token_ids, doc_ids)
        return Batch(token_ids, doc_ids, inputs["supervised"], states, argmax)


class RowsDataset(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Packed rows, with the trunk's cached states where there are any."""

    def __init__(self, rows: PackedRows, cache: StateCache | None) -> None:
        self.rows = rows
        self.cache = cache

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, r: int) -> dict[str, torch.Tensor]:
        item = {
            "token_ids": self.rows.token_ids_RT[r],
            "doc_ids": self.rows.doc_ids_RT[r],
            "supervised": self.rows.supervised_RT[r],
        }
        if self.cache is not None:
            item |= {"states": self.cache.states_RTD[r], "argmax": self.cache.argmax_RT[r]}
        return item


def collate(items: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Rows -> batch."""
    return {name: torch.stack([item[name] for item in items]) for name in items[0]}


class HeadsTrainer(Trainer):
    """Trainer whose denominators are counted per depth over the whole accumulation window."""

    def _get_num_items_in_batch(
        self, batch_samples: list[dict[str, torch.Tensor]], device: torch.device
    ) -> torch.Tensor:
        num_depths = self.model.heads.config.num_depths
        counts = [count_valid(b["doc_ids"], b["supervised"], num_depths) for b in batch_samples]
        counts_K = torch.stack(counts).sum(0).to(device)
        if self.args.average_tokens_across_devices and self.args.world_size > 1:
            counts_K = self.accelerator.reduce(counts_K, reduction="sum")
        return counts_K

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Add the per-depth means to what the Trainer logs."""
        if "loss" in logs:
            logs = {**logs, **self.model.take_metrics()}
        super().log(logs, *args, **kwargs)


class _JsonlMetrics(TrainerCallback):
    """Appends every log line to ``metrics.jsonl``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        with self.path.open("a", encoding="utf-8") as sink:
            sink.write(json.dumps({"step": state.global_step, **(logs or {})}) + "\n")


def train(
    recipe: Recipe, resume: bool = False, overwrite: bool = False, on_progress: Progress | None = None
) -> TrainReport:
    """Run a recipe: read data, train the heads, write the adapter to ``recipe.output``.

    ``resume`` goes on from the last checkpoint in ``run_dir``; ``overwrite`` replaces an earlier run and its output.
    ``on_progress(stage, done, total)`` for what comes before the Trainer's own progress bar.
    """
    say = on_progress or (lambda stage, done, total: None)
    output, run_dir = Path(recipe.output), Path(recipe.run_dir)
    if output.exists() and not (overwrite or resume):
        raise UsageError(f"output {output} exists; choose another output, or give --overwrite to replace it")
    check_target(output, overwrite or resume)
    checkpoint = _checkpoint(run_dir, resume, overwrite)
    bf16 = _bf16(recipe)
    dtype = recipe.dtype if recipe.dtype != "auto" else ("bfloat16" if bf16 else "float32")
    say("loading the trunk", 0, 1)
    trunk = load_trunk(recipe.trunk, dtype=dtype)
    trunk.freeze()
    say("reading data", 0, 1)
    documents, held_out = split_held_out(read_documents(recipe.data, trunk), recipe.data.held_out)
    rows = pack(documents, recipe.data.max_length)
    if not count_valid(rows.doc_ids_RT, rows.supervised_RT, recipe.heads.num_depths).any():
        raise DataError(
            "nothing to learn: no document has a token to predict at any depth",
            ", ".join(recipe.data.files + recipe.data.texts),
        )
    cache = _cache(recipe, trunk, rows, run_dir, say)
    heads = _heads(recipe, trunk, rows, cache)
    heads.float().requires_grad_(True).train()
    if heads.config.final_norm == "trunk":  # not stored with the heads, so it must stay as it is
        for module in heads.modules_by_depth:
            module.norm.requires_grad_(False)
    model = HeadsOnFrozenTrunk(heads, recipe.objective)
    started = time.perf_counter()
    trainer = HeadsTrainer(
        model=model,
        args=_arguments(recipe, run_dir, bf16),
        train_dataset=RowsDataset(rows, cache),
        data_collator=collate,
        callbacks=[_JsonlMetrics(run_dir / "metrics.jsonl")],
    )
    result = trainer.train(resume_from_checkpoint=checkpoint)
    report = TrainReport(
        str(output), rows.num_tokens, trainer.state.global_step, time.perf_counter() - started, result.training_loss
    )
    heads.eval()
    if held_out:
        say("probing held-out documents", 0, 1)
        with torch.autocast(trunk.device.type, dtype=torch.bfloat16, enabled=bf16):
            probed = probe_documents(heads, held_out[:400], recipe.data.max_length)
        report.held_out = probed.as_dict()
    summary = {**report.as_dict(), "recipe": asdict(recipe)}
    save_adapter(heads, output, training=summary, overwrite=overwrite or resume)
    return report


def _checkpoint(run_dir: Path, resume: bool, overwrite: bool) -> str | None:
    """Where to go on from. Checkpoints of an earlier run are never mixed with those of a new one."""
    checkpoint: str | None = get_last_checkpoint(str(run_dir)) if run_dir.exists() else None
    if checkpoint is None or resume:
        return checkpoint
    if not overwrite:
        raise UsageError(
            f"run_dir {run_dir} holds checkpoints of an earlier run; go on from them with --resume, "
            "or give --overwrite to begin anew"
        )
    for folder in run_dir.glob("checkpoint-*"):
        shutil.rmtree(folder)
    (run_dir / "metrics.jsonl").unlink(missing_ok=True)
    return None


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
    return SequentialHeads(trunk, config, draft_ids)


def _cache(recipe: Recipe, trunk: Trunk, rows: PackedRows, run_dir: Path, say: Progress) -> StateCache | None:
    wanted = recipe.train.cache_states
    if wanted == "auto":
        wanted = recipe.train.epochs > 1 and room_for(run_dir, StateCache.num_bytes(trunk, rows))
    if not wanted:
        return None
    cache = StateCache(run_dir / "cache", trunk, rows)
    cache.fill(on_progress=lambda done, total: say("computing trunk states", done, total))
    return cache


def _bf16(recipe: Recipe) -> bool:
    if recipe.dtype == "bfloat16" or recipe.train.precision != "auto":
        return "bfloat16" in (recipe.dtype, recipe.train.precision)
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported()
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()) and torch.cpu._is_amx_tile_supported()


def _arguments(recipe: Recipe, run_dir: Path, bf16: bool) -> TrainingArguments:
    train = recipe.train
    return TrainingArguments(
        output_dir=str(run_dir),
        num_train_epochs=train.epochs,
        max_steps=train.max_steps or -1,
        per_device_train_batch_size=train.batch_rows,
        gradient_accumulation_steps=train.accumulation,
        learning_rate=train.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=train.warmup_ratio,
        weight_decay=train.weight_decay,
        max_grad_norm=train.max_grad_norm,
        adam_beta2=0.95,
        bf16=bf16,
        use_cpu=not torch.cuda.is_available(),
        logging_steps=train.log_steps,
        save_steps=train.save_steps,
        save_total_limit=2,
        seed=train.seed,
        data_seed=train.seed,
        report_to=[],
        remove_unused_columns=False,
        label_names=[],
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
    )
