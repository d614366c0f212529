"""transformers' Trainer for heads: their loss as a module, rows as a dataset, counts over the whole window, a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainerCallback

from foretell.models.decoder import States
from foretell.models.heads import Heads
from foretell.training.data import PackedRows
from foretell.training.objective import Batch, count_valid, heads_loss
from foretell.training.recipe import ObjectiveConfig
from foretell.training.states import StateCache, trunk_outputs


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
        return Batch(token_ids, doc_ids, inputs["supervised"], states, argmax, inputs.get("row"))


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
            "row": torch.tensor(r),
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


class JsonlMetrics(TrainerCallback):
    """Appends every log line to ``metrics.jsonl``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """One line: the step, and what the Trainer logs."""
        with self.path.open("a", encoding="utf-8") as sink:
            sink.write(json.dumps({"step": state.global_step, **(logs or {})}) + "\n")
