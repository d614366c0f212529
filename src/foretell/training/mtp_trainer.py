"""transformers' Trainer for trunk and heads: counts over the whole window, two clip groups, checkpoints that load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import ProgressCallback, Trainer

from foretell.errors import ForetellError
from foretell.models.shards import whole
from foretell.training.gradient_check import GradientCheck
from foretell.training.optimizer_state import load_state_by_name, read_state, state_by_name
from foretell.training.recipe import TrainConfig
from foretell.training.run_log import StepLines
from foretell.training.sharding import shard
from foretell.training.targets import count_valid
from foretell.training.training_model import TrainingModel


class MTPTrainer(Trainer):
    """``save(folder, is_main)`` writes a checkpoint's weights; weights to go on from are loaded before, by the caller.

    The model is split here where the recipe says so; accelerate then only places it.
    """

    model: TrainingModel

    def __init__(
        self, model: TrainingModel, config: TrainConfig, save: Callable[[Path, bool], None], **kwargs: Any
    ) -> None:
        super().__init__(model=model, **kwargs)
        self.remove_callback(ProgressCallback)
        self.add_callback(StepLines)
        self._config = config
        self._save_weights = save
        self._norms: dict[str, float] = {}
        self._has_targets = True
        if config.sharding == "fsdp" and self.args.world_size > 1:
            shard(model)
            place = self.accelerator.prepare_model
            self.accelerator.prepare_model = lambda m, **_: place(m, evaluation_mode=True)
        self._parts = _trainable_parts(model)  # after the split, which makes other parameters
        late = model.objective.curriculum_share if model.objective.curriculum == "forward" else 0.0
        self._gradients = GradientCheck(model, wait_share=late)

    def _get_num_items_in_batch(
        self, batch_samples: list[dict[str, torch.Tensor]], device: torch.device
    ) -> torch.Tensor:
        counts = [count_valid(b["doc_ids"], b["supervised"], self.model.num_depths) for b in batch_samples]
        total = torch.stack(counts).sum(0).to(device)
        if self.args.world_size > 1:
            total = self.accelerator.reduce(total, reduction="sum")
        self._has_targets = bool(total[0 if self.model.trained_trunk is not None else 1] > 0)
        return total

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """One micro-batch, under the schedules of this moment."""
        self.model.progress = self.state.global_step / max(self.state.max_steps, 1)
        every = self.model.objective.gradient_share_steps
        self.model.gradient_shares_due = every > 0 and self.state.global_step % every == 0
        return super().training_step(*args, **kwargs)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The Trainer's own optimizer; groups of trunk and heads, with and without weight decay, each at its rate."""
        decays = set(self.get_decay_parameter_names(self.model))
        groups = []
        for part, params in self._parts.items():
            rate = self._config.heads_learning_rate if part == "heads" else 0.0
            for decay in (True, False):
                chosen = [param for name, param in params.items() if (name in decays) == decay]
                if chosen:
                    groups.append(
                        {
                            "params": chosen,
                            "weight_decay": self.args.weight_decay if decay else 0.0,
                            "lr": rate or self.args.learning_rate,
                        }
                    )
        kind, settings = self.get_optimizer_cls_and_kwargs(self.args, self.model)
        self.optimizer = kind(groups, **settings)
        return self.optimizer

    def _clip_grad_norm(self, model: nn.Module) -> torch.Tensor:
        """Clip, and stop where a gradient is missing or not finite; called every step, without clipping at norm inf."""
        if self._has_targets:
            self._gradients(self.state.global_step, self.state.max_steps)
        params = {part: list(group.values()) for part, group in self._parts.items()}
        norms = {
            part: whole(nn.utils.get_total_norm([p.grad for p in group if p.grad is not None])).to(self.args.device)
            for part, group in params.items()
        }
        total = torch.linalg.vector_norm(torch.stack(list(norms.values())))
        if not bool(total.isfinite()):
            raise ForetellError(
                f"the gradient norm is {float(total)} at step {self.state.global_step + 1}; nothing was written after "
                "the last checkpoint. Lower learning_rate, give more warmup_ratio, or compute in float32"
            )
        for part, group in params.items():
            norm = norms[part] if self._config.clip == "separate" else total
            nn.utils.clip_grads_with_norm_(group, self.args.max_grad_norm, norm)
        self._norms = {f"grad_norm_{part}": float(norm) for part, norm in norms.items()}
        return total

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Add the means per depth, and the gradient norms, to what the Trainer logs."""
        if "loss" in logs:
            several = self.args.world_size > 1
            means = self.model.meter.take(
                lambda sums: self.accelerator.reduce(sums.to(self.args.device).float()) if several else sums
            )
            for depth in range(2, self.model.num_depths + 1):  # shares of the chains that come as far, multiplied up
                if f"chained_{depth}" in means:
                    means[f"chained_{depth}"] *= means.get(f"chained_{depth - 1}", 0.0)
            logs = {**logs, **self._norms, **means}
        super().log(logs, *args, **kwargs)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        self._save_weights(Path(output_dir or self.args.output_dir), self.args.should_save)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """The weights are there already."""

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        state = state_by_name(_inner(self.optimizer), self.model, keep=self.args.should_save)
        if self.args.should_save:
            torch.save(state, Path(output_dir) / "optimizer.pt")
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / "scheduler.pt")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        load_state_by_name(_inner(self.optimizer), self.model, read_state(Path(checkpoint) / "optimizer.pt"))
        self.lr_scheduler.load_state_dict(read_state(Path(checkpoint) / "scheduler.pt"))


def _trainable_parts(model: TrainingModel) -> dict[str, dict[str, nn.Parameter]]:
    """Trainable parameters of the trunk and of the heads by name; a part without any is left out."""
    parts: dict[str, dict[str, nn.Parameter]] = {"trunk": {}, "heads": {}}
    for name, param in model.named_parameters():
        if param.requires_grad:
            parts["heads" if name.startswith("heads.") else "trunk"][name] = param
    return {part: params for part, params in parts.items() if params}


def _inner(optimizer: Any) -> torch.optim.Optimizer:
    """The optimizer inside accelerate's wrapper."""
    return getattr(optimizer, "optimizer", optimizer)
