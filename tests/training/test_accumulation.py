"""Windows that the Trainer splits: token means, not means of means."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import TrainingArguments

from foretell.models.trunk import Trunk
from foretell.training.mtp_trainer import MTPTrainer
from foretell.training.recipe import ObjectiveConfig, TrainConfig
from foretell.training.rows import RowsDataset, collate
from foretell.training.training_model import TrainingModel
from tests.fixtures import tiny_llama
from tests.training.batches import (
    HEADS,
    assert_same_gradients,
    batch_of,
    document,
    gradients,
    loss_of,
    one_a_row,
    trained_heads,
)

ROWS = one_a_row([document(n + 4, n, num_prompt=4) for n in (3, 60, 7, 25, 4, 41, 12, 33)])
OBJECTIVE = ObjectiveConfig("data", decay=0.7)


def fresh(train_trunk: bool) -> TrainingModel:
    trunk = Trunk(tiny_llama())
    trunk.model.requires_grad_(train_trunk)
    return TrainingModel(trunk, trained_heads(trunk, **HEADS["distinct"]), OBJECTIVE, train_trunk)


def one_step(
    folder: Path, train_trunk: bool, batch_size: int, accumulation: int
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Changes of the tensors that train after one plain gradient step, and what was logged."""
    model = fresh(train_trunk)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    args = TrainingArguments(
        output_dir=str(folder / f"{batch_size}x{accumulation}"),
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        max_steps=1,
        learning_rate=1.0,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=1e9,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        remove_unused_columns=False,
        label_names=[],
        disable_tqdm=True,
    )
    trainer = MTPTrainer(
        model,
        TrainConfig(),
        lambda folder, is_main: None,
        args=args,
        train_dataset=RowsDataset(ROWS),
        data_collator=collate,
    )
    trainer.train()
    logged = next(entry for entry in trainer.state.log_history if "loss" in entry)
    return {name: before[name] - p.detach() for name, p in model.named_parameters()}, logged


@pytest.mark.parametrize("train_trunk", [False, True], ids=["frozen", "joint"])
def test_accumulation_does_not_matter(train_trunk: bool, tmp_path: Path) -> None:
    """Gradient, total loss and the loss of each depth."""
    model = fresh(train_trunk)
    assert model.heads is not None
    expected = loss_of(model.heads, batch_of(model.trunk, ROWS, train_trunk), OBJECTIVE, train_trunk)
    expected_gradients = {n.removeprefix("0."): g for n, g in gradients(expected.total, model).items()}
    for batch_size, accumulation in ((8, 1), (1, 8), (2, 4), (3, 3)):
        steps, logged = one_step(tmp_path, train_trunk, batch_size, accumulation)
        assert_same_gradients(steps, expected_gradients, rtol=1e-3)  # a difference of weights, rounded
        assert logged["loss"] == pytest.approx(float(expected.total.detach()), rel=1e-4)
        parts = [(0, expected.main)] if expected.main is not None else []
        for k, part in [*parts, *enumerate(expected.depths, start=1)]:
            assert logged[f"loss_{k}"] == pytest.approx(float(part.loss_sum.detach()) / part.num_valid, rel=1e-5)
