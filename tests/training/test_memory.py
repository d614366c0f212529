"""Logits of two depths, or of two parts of one, are never alive together."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from foretell.config import HeadsConfig
from foretell.models.build import build_heads
from foretell.models.trunk import Trunk
from foretell.training.recipe import ObjectiveConfig
from foretell.training.training_model import TrainingModel
from tests.fixtures import VOCAB_SIZE, tiny_llama


@pytest.mark.parametrize("train_trunk", [True, False])
@pytest.mark.parametrize("kind", ["sequential", "parallel", "medusa"])
def test_logits_live_one_at_a_time(monkeypatch: pytest.MonkeyPatch, kind: Any, train_trunk: bool) -> None:
    """Every projection to the vocabulary begins when the logits before it are gone."""
    trunk = Trunk(tiny_llama())
    if not train_trunk:
        trunk.freeze()
    heads = build_heads(trunk, HeadsConfig(kind=kind, num_depths=3))
    target = "data" if train_trunk else "argmax"
    model = TrainingModel(trunk, heads, ObjectiveConfig(target=target), train_trunk=train_trunk)
    token_ids = torch.randint(0, 256, (5, 130))  # more than two chunks
    doc_ids, supervised = torch.zeros_like(token_ids), torch.ones_like(token_ids, dtype=torch.bool)
    made: list[weakref.ref[torch.Tensor]] = []
    most_rows = 0
    scale = trunk.scale_logits

    def watch(logits: torch.Tensor) -> torch.Tensor:
        nonlocal most_rows
        assert not any(one() is not None for one in made), "logits of before are still alive"
        out = scale(logits)
        made.append(weakref.ref(out))
        most_rows = max(most_rows, out.numel() // VOCAB_SIZE)
        return out

    monkeypatch.setattr(trunk, "scale_logits", watch)
    loss = model(token_ids, doc_ids, supervised)["loss"]
    gc.collect()
    assert not any(one() is not None for one in made)
    loss.backward()
    assert len(made) >= 9 and most_rows <= 256
