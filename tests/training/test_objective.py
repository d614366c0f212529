"""The chunked loss against plain autograd; rows with nothing to learn, split batches, packing."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import pytest
import torch
from transformers import TrainingArguments

from foretell.models.sequential import SequentialHeads
from foretell.models.trunk import Trunk
from foretell.training import objective
from foretell.training.data import Document, PackedRows, pack
from foretell.training.heads_trainer import HeadsOnFrozenTrunk, HeadsTrainer, RowsDataset, collate
from foretell.training.objective import Batch, count_valid, depth_weights, heads_loss
from foretell.training.recipe import ObjectiveConfig
from foretell.training.states import trunk_outputs
from tests.fixtures import FAMILIES, random_heads, tiny_llama

TARGETS = ("argmax", "data", "distribution")
MODES = {
    "unrolled": {"unrolled": True, "num_depths": 3},
    "distinct": {"unrolled": False, "num_modules": 2, "num_depths": 2},
}
DRAFT_IDS = list(range(0, 256, 3))


@cache
def llama() -> Trunk:
    trunk = Trunk(tiny_llama())
    trunk.freeze()
    return trunk


def trained_heads(trunk: Trunk, **config: Any) -> SequentialHeads:
    heads = random_heads(trunk, **config)
    for parameter in heads.parameters():
        parameter.requires_grad_(True)
    return heads


def document(num_tokens: int, seed: int, num_prompt: int = 0) -> Document:
    ids = torch.randint(0, 256, (num_tokens,), generator=torch.Generator().manual_seed(seed)).tolist()
    return Document(ids, [i >= num_prompt for i in range(num_tokens)])


def batch_of(trunk: Trunk, rows: PackedRows) -> Batch:
    token_ids, doc_ids = rows.token_ids_RT.long(), rows.doc_ids_RT.long()
    return Batch(token_ids, doc_ids, rows.supervised_RT, *trunk_outputs(trunk, token_ids, doc_ids))


def one_a_row(documents: list[Document]) -> PackedRows:
    length = max(len(d.token_ids) for d in documents)
    parts = [pack([d], length) for d in documents]
    return PackedRows(*(torch.cat([getattr(p, name) for p in parts]) for name in vars(parts[0])))


def counts_of(heads: SequentialHeads, batch: Batch) -> torch.Tensor:
    return count_valid(batch.doc_ids_BT, batch.supervised_BT, heads.config.num_depths)


def gradients(heads: SequentialHeads, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    heads.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in heads.named_parameters() if p.grad is not None}


def assert_same_gradients(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], rtol: float = 1e-4) -> None:
    assert got.keys() == expected.keys()
    for name, grad in got.items():
        scale = float(expected[name].abs().max())
        torch.testing.assert_close(
            grad, expected[name], rtol=rtol, atol=rtol * scale, msg=lambda t, n=name: f"{n}: {t}"
        )


def plain_loss(heads: SequentialHeads, batch: Batch, config: ObjectiveConfig) -> torch.Tensor:
    """Position by position, with whole logits and autograd; the specification."""
    states = heads.training_states(batch.states, heads.trunk.embed(batch.token_ids_BT), batch.doc_ids_BT)
    ids = list(range(heads.trunk.vocab_size)) if heads.draft_ids_V is None else heads.draft_ids_V.tolist()
    weights = [config.decay**k for k in range(len(states))]
    total = torch.zeros(())
    for k, state_BTD in enumerate(states, start=1):
        losses = []
        for b, i in torch.cartesian_prod(*(torch.arange(n) for n in batch.token_ids_BT.shape)).tolist():
            last = i + k + 1
            if last >= batch.token_ids_BT.shape[1] or not batch.supervised_BT[b, last]:
                continue
            if batch.doc_ids_BT[b, i] < 0 or batch.doc_ids_BT[b, i] != batch.doc_ids_BT[b, last]:
                continue
            log_q = heads.project(state_BTD[b, i]).log_softmax(-1)
            p = heads.trunk.project(batch.states.post_BTD[b, i + k])[ids].softmax(-1)
            target = int(batch.argmax_BT[b, i + k] if config.target == "argmax" else batch.token_ids_BT[b, last])
            if config.target == "distribution":
                losses.append((p * (p.log() - log_q)).sum())
            elif target in ids:
                losses.append(-log_q[ids.index(target)])
            else:
                losses.append(torch.zeros(()))  # counted as a position, though heads cannot say it
        if losses:
            total = total + weights[k - 1] / sum(weights) * sum(losses) / len(losses)
    return total


@pytest.mark.parametrize(
    "extra", [{}, {"own_output": True}, {"draft_ids": DRAFT_IDS}, {"own_output": True, "draft_ids": DRAFT_IDS}], ids=str
)
@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("target", TARGETS)
def test_loss_and_gradients_are_those_of_plain_autograd(
    monkeypatch: pytest.MonkeyPatch, target: Any, mode: str, extra: dict[str, Any]
) -> None:
    monkeypatch.setattr(objective, "_CHUNK", 5)  # several chunks and a rest
    heads = trained_heads(llama(), **MODES[mode], **extra)
    batch = batch_of(llama(), pack([document(9, 1, num_prompt=4), document(2, 2), document(11, 3), document(6, 4)], 16))
    config = ObjectiveConfig(target, decay=0.6)
    expected = plain_loss(heads, batch, config)
    loss, parts = heads_loss(heads, batch, config, counts_of(heads, batch))
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    expected_grads = gradients(heads, 3 * expected)
    assert_same_gradients(gradients(heads, 3 * loss), expected_grads)
    assert expected_grads.keys() == dict(heads.named_parameters()).keys()
    assert all(grad.abs().sum() > 0 for grad in expected_grads.values())
    assert [part.num_valid for part in parts] == counts_of(heads, batch).tolist()


def test_the_heads_agree_with_the_trunk_as_often_as_counted() -> None:
    heads = random_heads(llama(), num_depths=2, own_output=False, draft_ids=DRAFT_IDS)
    batch = batch_of(llama(), pack([document(40, seed) for seed in range(4)], 40))
    states = heads.training_states(batch.states, llama().embed(batch.token_ids_BT), batch.doc_ids_BT)
    # Every second guess of depth 1 is right.
    batch.argmax_BT[:, 2::2] = heads.to_token_ids(heads.project(states[0]).argmax(-1))[:, 1:-1:2]
    _, [first, _] = heads_loss(heads, batch, ObjectiveConfig("argmax"), counts_of(heads, batch))
    assert int(first.num_agreed) == 4 * 19 + sum(
        int(heads.to_token_ids(heads.project(states[0][b, i]).argmax()) == batch.argmax_BT[b, i + 1])
        for b in range(4)
        for i in range(0, 38, 2)
    )


@pytest.mark.parametrize("target", TARGETS)
def test_frozen_heads_have_a_loss_too(target: Any) -> None:
    heads = random_heads(llama(), own_output=True)
    batch = batch_of(llama(), pack([document(12, 1)], 12))
    loss, _ = heads_loss(heads, batch, ObjectiveConfig(target), counts_of(heads, batch))
    torch.testing.assert_close(loss, plain_loss(heads, batch, ObjectiveConfig(target)))


def test_weights_of_the_depths() -> None:
    assert depth_weights(ObjectiveConfig(decay=0.5), 3) == pytest.approx([4 / 7, 2 / 7, 1 / 7])
    assert depth_weights(ObjectiveConfig(decay=1.0), 4) == [0.25] * 4
    assert depth_weights(ObjectiveConfig(weights=(1.0, 0.0, 3.0)), 3) == [1.0, 0.0, 3.0]


# Rows with nothing to learn


def rows_with_nothing_to_learn() -> list[Document]:
    return [document(1, 1), document(2, 2), Document([1, 2, 3, 4, 5, 6], [False] * 6)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_rows_with_nothing_to_learn(target: Any, dtype: torch.dtype) -> None:
    trunk = Trunk(tiny_llama().to(dtype))
    heads = trained_heads(trunk, num_depths=3)
    config = ObjectiveConfig(target)
    normal = document(10, 3)
    results = []
    for documents in ([*rows_with_nothing_to_learn(), normal], [normal]):
        batch = batch_of(trunk, one_a_row(documents))
        loss, _ = heads_loss(heads, batch, config, counts_of(heads, batch))
        results.append((loss.detach(), gradients(heads, loss)))
    tolerance = 1e-5 if dtype == torch.float32 else 0.03
    torch.testing.assert_close(results[0][0], results[1][0], rtol=tolerance, atol=0)
    assert all(grad.isfinite().all() for grad in results[0][1].values())
    if dtype == torch.float32:
        assert_same_gradients(results[0][1], results[1][1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("own_output", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_a_batch_with_nothing_to_learn(target: Any, own_output: bool, dtype: torch.dtype) -> None:
    trunk = Trunk(tiny_llama().to(dtype))
    heads = trained_heads(trunk, num_depths=3, own_output=own_output)
    batch = batch_of(trunk, one_a_row(rows_with_nothing_to_learn()))
    with pytest.warns(UserWarning, match="no token of this batch is a target at any depth .* Its rows: 0, 1, 2"):
        loss, _ = heads_loss(heads, batch, ObjectiveConfig(target), counts_of(heads, batch))
    assert float(loss.detach()) == 0
    grads = gradients(heads, loss)
    assert grads and all(float(grad.abs().sum()) == 0 for grad in grads.values())  # NaN is not 0


def test_a_part_with_nothing_to_learn_gives_no_warning() -> None:
    """The window it belongs to has targets."""
    heads = random_heads(llama())
    batch = batch_of(llama(), one_a_row(rows_with_nothing_to_learn()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss, _ = heads_loss(heads, batch, ObjectiveConfig(), torch.tensor([5, 4, 3]))
    assert float(loss) == 0


# Batches split into micro-batches

SAMPLES = [document(n + 4, n, num_prompt=4) for n in (3, 60, 7, 25, 4, 41, 12, 33)]


def part(batch: Batch, rows: slice) -> Batch:
    states = type(batch.states)(*(side[rows] for side in batch.states))
    return Batch(
        batch.token_ids_BT[rows], batch.doc_ids_BT[rows], batch.supervised_BT[rows], states, batch.argmax_BT[rows]
    )


@pytest.mark.parametrize("own_output", [False, True])
def test_the_split_of_a_window_does_not_matter(own_output: bool) -> None:
    heads = trained_heads(llama(), num_depths=2, own_output=own_output)
    batch = batch_of(llama(), one_a_row(SAMPLES))
    counts_K = counts_of(heads, batch)
    assert counts_K.tolist() == [sum(len(d.token_ids) - 4 for d in SAMPLES)] * 2
    found = []
    for sizes in ([8], [1] * 8, [2, 6]):
        total, start, depth_sums = torch.zeros(()), 0, [0.0, 0.0]
        for size in sizes:
            loss, parts = heads_loss(heads, part(batch, slice(start, start + size)), ObjectiveConfig("data"), counts_K)
            total = total + loss
            depth_sums = [s + float(p.loss_sum.detach()) for s, p in zip(depth_sums, parts, strict=True)]
            start += size
        found.append((total.detach(), depth_sums, gradients(heads, total)))
    for loss, depth_sums, grads in found[1:]:
        torch.testing.assert_close(loss, found[0][0], rtol=1e-5, atol=0)
        assert depth_sums == pytest.approx(found[0][1], rel=1e-5)
        assert_same_gradients(grads, found[0][2])


def one_step(tmp_path: Any, batch_size: int, accumulation: int) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Changes of the heads' tensors after one plain gradient step with HeadsTrainer, and what it logged."""
    heads = trained_heads(llama(), num_depths=2)
    before = {name: p.detach().clone() for name, p in heads.named_parameters()}
    args = TrainingArguments(
        output_dir=str(tmp_path / f"{batch_size}x{accumulation}"),
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        max_steps=1,
        learning_rate=1.0,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0.0,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        remove_unused_columns=False,
        label_names=[],
        disable_tqdm=True,
    )
    trainer = HeadsTrainer(
        model=HeadsOnFrozenTrunk(heads, ObjectiveConfig("data", decay=0.7)),
        args=args,
        train_dataset=RowsDataset(one_a_row(SAMPLES), None),
        data_collator=collate,
    )
    trainer.train()
    logged = next(entry for entry in trainer.state.log_history if "loss" in entry)
    return {name: before[name] - p.detach() for name, p in heads.named_parameters()}, logged


def test_accumulation_in_the_trainer_does_not_matter(tmp_path: Any) -> None:
    """Gradient, total loss and the loss of each depth: token means, not means of means."""
    heads = trained_heads(llama(), num_depths=2)
    batch = batch_of(llama(), one_a_row(SAMPLES))
    expected_loss, parts = heads_loss(heads, batch, ObjectiveConfig("data", decay=0.7), counts_of(heads, batch))
    expected = gradients(heads, expected_loss)
    for batch_size, accumulation in ((8, 1), (1, 8), (2, 4), (3, 3)):
        steps, logged = one_step(tmp_path, batch_size, accumulation)
        assert_same_gradients(steps, expected, rtol=1e-3)  # a difference of weights, rounded
        assert logged["loss"] == pytest.approx(float(expected_loss.detach()), rel=1e-4)
        for k, depth in enumerate(parts, start=1):
            assert logged[f"loss_{k}"] == pytest.approx(float(depth.loss_sum.detach()) / depth.num_valid, rel=1e-5)


# Packed documents


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("family", ["llama", "mistral", "deepseek_v3"])
def test_packed_is_separate(family: str, mode: str, target: Any) -> None:
    """30 tokens a document: past the sliding window."""
    trunk = Trunk(FAMILIES[family]())
    heads = trained_heads(trunk, own_output=target == "data", **MODES[mode])
    documents = [document(30, 1, num_prompt=5), document(5, 2), document(2, 3), document(19, 4)]
    results = []
    for rows in (pack(documents, 60), one_a_row(documents)):
        batch = batch_of(trunk, rows)
        loss, _ = heads_loss(heads, batch, ObjectiveConfig(target), counts_of(heads, batch))
        results.append((len(rows), loss.detach(), gradients(heads, loss)))
    (num_packed, loss, grads), (num_separate, expected_loss, expected) = results
    assert (num_packed, num_separate) == (1, 4)
    torch.testing.assert_close(loss, expected_loss, rtol=1e-5, atol=0)
    assert_same_gradients(grads, expected)
