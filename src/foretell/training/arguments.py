"""What transformers' Trainer is told: its arguments, and the precision it computes in."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from transformers import TrainingArguments
from transformers.integrations import is_tensorboard_available

from foretell.errors import UsageError
from foretell.training.recipe import Recipe


def computes_in_bf16(recipe: Recipe) -> bool:
    """True where the recipe asks for bf16, or leaves it open and this machine is fast in it."""
    if recipe.dtype == "bfloat16" or recipe.train.precision != "auto":
        return "bfloat16" in (recipe.dtype, recipe.train.precision)
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported()
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()) and torch.cpu._is_amx_tile_supported()
    except (AttributeError, RuntimeError):  # a torch built without oneDNN, or one that renamed these
        return False


def check_batch_rows(recipe: Recipe, num_processes: int) -> None:
    """Raise UsageError where the rows of a micro-batch cannot be dealt out to the processes."""
    rows = recipe.train.batch_rows
    if rows % num_processes:
        raise UsageError(f"[train] batch_rows is {rows}; allowed: a multiple of the {num_processes} processes")


def training_arguments(recipe: Recipe, run_dir: Path, num_processes: int = 1) -> TrainingArguments:
    """The recipe's ``[train]`` table in the Trainer's words; bf16 is TrainingModel's own doing."""
    train = recipe.train
    check_batch_rows(recipe, num_processes)
    arguments = TrainingArguments(
        output_dir=str(run_dir),
        num_train_epochs=train.epochs,
        max_steps=train.max_steps or -1,
        per_device_train_batch_size=train.batch_rows // num_processes,
        gradient_accumulation_steps=train.accumulation,
        learning_rate=train.learning_rate,
        lr_scheduler_type=_SCHEDULES[train.lr_schedule],
        warmup_steps=train.warmup_ratio,
        weight_decay=train.weight_decay,
        max_grad_norm=train.max_grad_norm or math.inf,  # the Trainer calls our clipping only above 0
        logging_nan_inf_filter=False,
        adam_beta2=0.95,
        use_cpu=not torch.cuda.is_available(),
        logging_steps=train.log_steps,
        save_steps=train.save_steps,
        save_total_limit=train.keep_checkpoints,
        seed=train.seed,
        data_seed=train.seed,
        report_to=["tensorboard"] if is_tensorboard_available() else [],
        remove_unused_columns=False,
        label_names=[],
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=recipe.objective.curriculum != "none",
        accelerator_config={"dispatch_batches": False},
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # the trunk is on one: DataParallel would send heads to the others
    return arguments


_SCHEDULES = {"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}
