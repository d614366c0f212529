"""Batches of tiny models for the tests of the loss, and what their gradients are compared with."""

from __future__ import annotations

from typing import Any

import torch

from foretell.models.heads import Heads
from foretell.models.trunk import Trunk
from foretell.training.documents import Document
from foretell.training.objective import Batch, JointLoss, joint_loss
from foretell.training.packing import PackedRows, pack
from foretell.training.recipe import ObjectiveConfig
from foretell.training.states import trunk_outputs
from foretell.training.targets import count_valid
from tests.fixtures import random_heads

HEADS: dict[str, dict[str, Any]] = {
    "unrolled": {"unrolled": True, "num_depths": 3},
    "distinct": {"unrolled": False, "num_modules": 2, "num_depths": 2},
    "parallel": {"kind": "parallel", "num_depths": 3},
    "below": {"kind": "parallel", "num_depths": 2, "hidden_source": "below"},
    "medusa": {"kind": "medusa", "num_depths": 3},
}
"""Heads of every kind, small."""

GOALS = [
    ("ce", "data"),
    ("ce", "argmax"),
    ("kl", "distribution"),
    ("soft_ce", "distribution"),
    ("reverse_kl", "distribution"),
    ("tv", "distribution"),
]
"""Every loss with what it may be taken against."""

DRAFT_IDS = list(range(0, 256, 3))


def trained_heads(trunk: Trunk, seed: int = 0, draft_ids: list[int] | None = None, **config: Any) -> Heads:
    """``random_heads``, all of which train."""
    return random_heads(trunk, seed, draft_ids, **config).requires_grad_(True)


def document(num_tokens: int, seed: int, num_prompt: int = 0) -> Document:
    """Random bytes; the first ``num_prompt`` are no labels."""
    ids = torch.randint(0, 256, (num_tokens,), generator=torch.Generator().manual_seed(seed)).tolist()
    return Document(ids, [i >= num_prompt for i in range(num_tokens)])


def one_a_row(documents: list[Document]) -> PackedRows:
    """Every document in a row of its own, padded to the longest."""
    length = max(len(d.token_ids) for d in documents)
    parts = [pack([d], length) for d in documents]
    return PackedRows(*(torch.cat([getattr(p, name) for p in parts]) for name in vars(parts[0])))


def batch_of(trunk: Trunk, rows: PackedRows, train_trunk: bool = False) -> Batch:
    """The rows with the trunk's states: with their graph where it trains, else with its argmax."""
    token_ids, doc_ids = rows.token_ids_RT.long(), rows.doc_ids_RT.long()
    if train_trunk:
        return Batch(token_ids, doc_ids, rows.supervised_RT, trunk.text_states(token_ids, doc_ids), None)
    return Batch(token_ids, doc_ids, rows.supervised_RT, *trunk_outputs(trunk, token_ids, doc_ids))


def counts_of(heads: Heads | None, batch: Batch) -> torch.Tensor:
    """(K+1,) valid positions of this batch."""
    return count_valid(batch.doc_ids_BT, batch.supervised_BT, 0 if heads is None else heads.config.num_depths)


def loss_of(
    heads: Heads,
    batch: Batch,
    config: ObjectiveConfig,
    train_trunk: bool = False,
    counts: torch.Tensor | None = None,
    progress: float = 0.0,
) -> JointLoss:
    """The joint loss of a batch that is a window of its own, unless ``counts`` are given."""
    counts = counts_of(heads, batch) if counts is None else counts
    return joint_loss(heads.trunk, heads, batch, config, counts, progress, train_trunk)


def gradients(loss: torch.Tensor, *modules: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Gradient of every parameter that gets one, by index of its module and name."""
    for module in modules:
        module.zero_grad()
    loss.backward()
    return {
        f"{m}.{name}": p.grad.clone()
        for m, module in enumerate(modules)
        for name, p in module.named_parameters()
        if p.grad is not None
    }


def assert_same_gradients(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], rtol: float = 1e-4) -> None:
    """Equal names, and equal values up to ``rtol`` of each tensor's largest."""
    assert got.keys() == expected.keys()
    for name, grad in got.items():
        scale = float(expected[name].abs().max())
        torch.testing.assert_close(
            grad, expected[name], rtol=rtol, atol=rtol * scale, msg=lambda t, n=name: f"{n}: {t}"
        )
