"""Rows with nothing to learn, windows split into micro-batches, packed documents."""

from __future__ import annotations

import itertools
import warnings
from functools import cache
from typing import Any

import pytest
import torch

from foretell.models.trunk import Trunk
from foretell.training import objective
from foretell.training.documents import Document
from foretell.training.packing import pack
from foretell.training.recipe import ObjectiveConfig
from tests.fixtures import FAMILIES, tiny_llama
from tests.training.batches import (
    GOALS,
    HEADS,
    assert_same_gradients,
    batch_of,
    counts_of,
    document,
    gradients,
    loss_of,
    one_a_row,
    trained_heads,
)


@cache
def llama(train: bool, dtype: torch.dtype = torch.float32) -> Trunk:
    trunk = Trunk(tiny_llama().to(dtype))
    trunk.model.requires_grad_(train)
    return trunk


# Rows with nothing to learn


def rows_with_nothing_to_learn() -> list[Document]:
    return [document(1, 1), document(2, 2), Document([1, 2, 3, 4, 5, 6], [False] * 6)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("train_trunk", [False, True], ids=["frozen", "joint"])
@pytest.mark.parametrize(("loss", "target"), GOALS)
def test_rows_with_nothing_to_learn(loss: Any, target: Any, train_trunk: bool, dtype: torch.dtype) -> None:
    trunk = llama(train_trunk, dtype=dtype)
    heads = trained_heads(trunk, num_depths=3)
    results = []
    for documents in ([*rows_with_nothing_to_learn(), document(10, 3, num_prompt=3)], [document(10, 3, num_prompt=3)]):
        batch = batch_of(trunk, one_a_row(documents), train_trunk)
        if train_trunk and len(documents) > 1:  # the second token of the two is a target of the trunk's
            batch.supervised_BT[1] = False
        total = loss_of(heads, batch, ObjectiveConfig(target, loss), train_trunk).total
        results.append((total.detach(), gradients(total, trunk.model, heads)))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-5 if dtype == torch.float32 else 0.03, atol=0)
    assert all(grad.isfinite().all() for grad in results[0][1].values())
    if dtype == torch.float32:
        assert_same_gradients(results[0][1], results[1][1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("train_trunk", [False, True], ids=["frozen", "joint"])
@pytest.mark.parametrize("own_output", [False, True], ids=["shared", "own"])
@pytest.mark.parametrize(("loss", "target"), [GOALS[0], GOALS[2], GOALS[5]])
def test_a_batch_with_nothing_to_learn(
    loss: Any, target: Any, own_output: bool, train_trunk: bool, dtype: torch.dtype
) -> None:
    trunk = llama(train_trunk, dtype=dtype)
    heads = trained_heads(trunk, num_depths=3, own_output=own_output)
    batch = batch_of(trunk, one_a_row(rows_with_nothing_to_learn()), train_trunk)
    batch.supervised_BT[1] &= not train_trunk
    with pytest.warns(UserWarning, match="no token of this batch is a target at any depth .* Its rows: 0, 1, 2"):
        found = loss_of(heads, batch, ObjectiveConfig(target, loss), train_trunk)
    assert float(found.total.detach()) == 0
    assert [part.num_valid for part in found.depths] == [0, 0, 0]
    grads = gradients(found.total, trunk.model, heads)
    names = [p for p in itertools.chain(trunk.model.parameters(), heads.parameters()) if p.requires_grad]
    assert len(grads) == len(names)
    assert all(float(grad.abs().sum()) == 0 for grad in grads.values())  # NaN is not 0


@pytest.mark.parametrize("train_trunk", [False, True], ids=["frozen", "joint"])
def test_a_part_with_nothing_to_learn_gives_no_warning(train_trunk: bool) -> None:
    """The window it belongs to has targets."""
    trunk = llama(train_trunk)
    heads = trained_heads(trunk, num_depths=3)
    batch = batch_of(trunk, one_a_row(rows_with_nothing_to_learn()[2:]), train_trunk)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        total = loss_of(heads, batch, ObjectiveConfig(), train_trunk, torch.tensor([6, 5, 4, 3])).total
    assert float(total.detach()) == 0


# Windows split into micro-batches

SAMPLES = [document(n + 4, n, num_prompt=4) for n in (3, 60, 7, 25, 4, 41, 12, 33)]


@pytest.mark.parametrize("train_trunk", [False, True], ids=["frozen", "joint"])
@pytest.mark.parametrize("kind", ["distinct", "medusa"])
def test_the_split_of_a_window_does_not_matter(kind: str, train_trunk: bool) -> None:
    trunk = llama(train_trunk)
    heads = trained_heads(trunk, **HEADS[kind])
    rows = one_a_row([*SAMPLES, document(2, 9)])  # a token for the trunk, none for a depth
    counts = counts_of(heads, batch_of(trunk, rows))
    num_targets = sum(len(d.token_ids) - 4 for d in SAMPLES)
    assert counts.tolist() == [num_targets + 1] + [num_targets] * heads.config.num_depths
    found = []
    for sizes in ([9], [1] * 9, [2, 6, 1]):
        total, sums = torch.zeros(()), [0.0] * (1 + heads.config.num_depths)
        for part in torch.arange(9).split(sizes):
            micro = type(rows)(*(getattr(rows, name)[part] for name in vars(rows)))
            loss = loss_of(heads, batch_of(trunk, micro, train_trunk), ObjectiveConfig("data"), train_trunk, counts)
            total = total + loss.total
            for depth, depth_loss in enumerate([loss.main, *loss.depths]):
                sums[depth] += float(depth_loss.loss_sum.detach()) if depth_loss is not None else 0.0
        found.append((total.detach(), sums, gradients(total, trunk.model, heads)))
    for loss_of_split, sums, grads in found[1:]:
        torch.testing.assert_close(loss_of_split, found[0][0], rtol=1e-5, atol=0)
        assert sums == pytest.approx(found[0][1], rel=1e-5)
        assert_same_gradients(grads, found[0][2])


def test_uneven_parts_count_by_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """90 tokens at mean 2.0 and 10 at mean 4.0 are 2.2, not 3.0."""
    heads = trained_heads(llama(False), num_depths=1)
    parts = [batch_of(llama(False), pack([document(n + 2, n, num_prompt=2)], n + 2)) for n in (90, 10)]
    counts = sum(counts_of(heads, part) for part in parts)
    assert counts.tolist() == [100, 100]
    total = 0.0
    for part, mean in zip(parts, (2.0, 4.0), strict=True):
        monkeypatch.setattr(objective, "cross_entropy", lambda q, t, m=mean: 0 * q.sum() + m * len(t))
        total += float(loss_of(heads, part, ObjectiveConfig("data"), counts=counts).total.detach())
    assert total == pytest.approx(2.2)


# Packed documents


@pytest.mark.parametrize("kind", ["unrolled", "distinct", "parallel", "below"])
@pytest.mark.parametrize("family", ["llama", "mistral", "deepseek_v3"])
def test_packed_is_separate(family: str, kind: str) -> None:
    """30 tokens a document: past the sliding window."""
    trunk = Trunk(FAMILIES[family]())
    documents = [document(30, 1, num_prompt=5), document(5, 2), document(2, 3), document(19, 4)]
    for train_trunk, config in ((False, ObjectiveConfig("distribution", "tv")), (True, ObjectiveConfig())):
        trunk.model.requires_grad_(train_trunk)
        heads = trained_heads(trunk, **HEADS[kind])
        results = []
        for rows in (pack(documents, 60), one_a_row(documents)):
            total = loss_of(heads, batch_of(trunk, rows, train_trunk), config, train_trunk).total
            results.append((len(rows), total.detach(), gradients(total, trunk.model, heads)))
        (num_packed, loss, grads), (num_separate, expected_loss, expected) = results
        assert (num_packed, num_separate) == (1, 4)
        torch.testing.assert_close(loss, expected_loss, rtol=1e-5, atol=0)
        assert_same_gradients(grads, expected)
