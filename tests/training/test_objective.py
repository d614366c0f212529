"""The joint loss against plain autograd in float64; what is cut and what is not; what is learnt; schedules."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import pytest
import torch

from foretell.models.heads import Heads
from foretell.models.trunk import Trunk
from foretell.training import chunked, objective
from foretell.training.documents import Document
from foretell.training.objective import Batch, joint_loss
from foretell.training.packing import pack
from foretell.training.probe import probe_documents
from foretell.training.recipe import ObjectiveConfig
from foretell.training.targets import count_valid
from tests.fixtures import FAMILIES, tiny_llama
from tests.training.batches import (
    DRAFT_IDS,
    GOALS,
    HEADS,
    assert_same_gradients,
    batch_of,
    counts_of,
    document,
    gradients,
    loss_of,
    trained_heads,
)

DETACHED = [names for n in range(4) for names in itertools.combinations(("trunk", "embedding", "output"), n)]
DOCUMENTS = [document(9, 1, num_prompt=4), document(2, 2), document(11, 3), document(6, 4)]


@cache
def llama(train: bool = False, tied: bool = False, dtype: torch.dtype = torch.float32) -> Trunk:
    trunk = Trunk(tiny_llama(tie_word_embeddings=tied).to(dtype))
    trunk.model.requires_grad_(train)
    return trunk


def plain_loss(heads: Heads, batch: Batch, config: ObjectiveConfig, train_trunk: bool, mtp_lambda: float) -> Any:
    """Position by position, with whole logits and autograd; the specification."""
    trunk, num_positions = heads.trunk, batch.token_ids_BT.shape[1]
    sides = [side.detach() if "trunk" in config.detach and side is not None else side for side in batch.states]
    embeddings_BTD = trunk.embed(batch.token_ids_BT)
    embeddings_BTD = embeddings_BTD.detach() if "embedding" in config.detach else embeddings_BTD
    states = heads.training_states(type(batch.states)(*sides), embeddings_BTD, batch.doc_ids_BT)
    ids = list(range(trunk.vocab_size)) if heads.draft_ids_V is None else heads.draft_ids_V.tolist()
    trunk_logits_BTV = batch.states.post_BTD @ trunk.output_head.weight.T

    def mean(depth: int, loss_at: Any) -> torch.Tensor:
        losses = []
        for b, i in itertools.product(range(len(batch.token_ids_BT)), range(num_positions - depth - 1)):
            last = i + depth + 1
            same = batch.doc_ids_BT[b, i] == batch.doc_ids_BT[b, last] >= 0
            if same and batch.supervised_BT[b, last]:
                losses.append(loss_at(b, i, last))
        return sum(losses) / len(losses)

    def main_loss(b: int, i: int, last: int) -> torch.Tensor:
        return -trunk_logits_BTV[b, i].log_softmax(-1)[batch.token_ids_BT[b, last]]

    def depth_loss(b: int, i: int, last: int) -> torch.Tensor:
        q = logits_BTV[b, i].softmax(-1)
        p = trunk_logits_BTV[b, last - 1].detach()[ids].softmax(-1)
        if config.loss == "kl":
            return (p * (p.log() - q.log())).sum()
        if config.loss == "soft_ce":
            return -(p * q.log()).sum()
        if config.loss == "reverse_kl":
            return (q * (q.log() - p.log())).sum()
        if config.loss == "tv":
            return 1 - torch.minimum(p, q).sum()
        target = trunk_logits_BTV[b, last - 1].argmax() if config.target == "argmax" else batch.token_ids_BT[b, last]
        return -q.log()[ids.index(target)] if int(target) in ids else 0 * q.sum()  # counted, though it cannot be said

    total = mean(0, main_loss) if train_trunk else 0.0
    for k, state_BTD in enumerate(states, start=1):
        own = heads.output_at(k)
        weight_VD = own.weight if own is not None else trunk.output_head.weight[ids]
        if own is None and "output" in config.detach:
            weight_VD = weight_VD.detach()
        logits_BTV = state_BTD @ weight_VD.T
        share = config.decay ** (k - 1) / sum(config.decay**j for j in range(len(states)))
        total = total + mtp_lambda * share * mean(k, depth_loss)
    return total


def compare_with_plain(trunk: Trunk, heads: Heads, config: ObjectiveConfig, train_trunk: bool) -> dict[str, Any]:
    """Loss and every gradient, in float64; returns the gradients."""
    rows = pack(DOCUMENTS, 16)
    mtp_lambda = 0.3 if train_trunk else 1.0
    expected = plain_loss(heads, batch_of(trunk, rows, train_trunk), config, train_trunk, mtp_lambda)
    expected_gradients = gradients(3 * expected, trunk.model, heads)
    found = loss_of(heads, batch_of(trunk, rows, train_trunk), config, train_trunk)
    assert found.total.dtype == torch.float64
    torch.testing.assert_close(found.total, expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(sum(found.terms), found.total, rtol=1e-9, atol=0)
    assert_same_gradients(gradients(3 * found.total, trunk.model, heads), expected_gradients, rtol=1e-7)
    return expected_gradients


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "_CHUNK", 5)  # several chunks and a rest


@pytest.mark.parametrize("train_trunk", [False, True], ids=["frozen", "joint"])
@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize(("loss", "target"), GOALS)
def test_loss_and_gradients_are_those_of_plain_autograd(loss: Any, target: Any, kind: str, train_trunk: bool) -> None:
    trunk = llama(train_trunk, dtype=torch.float64)
    heads = trained_heads(trunk, **HEADS[kind])
    found = compare_with_plain(trunk, heads, ObjectiveConfig(target, loss, decay=0.6), train_trunk)
    names = {f"1.{name}" for name, _ in heads.named_parameters()}
    names |= {f"0.{name}" for name, _ in trunk.model.named_parameters() if train_trunk}
    assert found.keys() == names
    assert all(grad.abs().sum() > 0 for grad in found.values())


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("detach", DETACHED, ids="+".join)
def test_what_is_detached_takes_no_gradient_and_the_rest_does(detach: Any, tied: bool) -> None:
    trunk = llama(True, tied, torch.float64)
    heads = trained_heads(trunk, **HEADS["distinct"])
    compare_with_plain(trunk, heads, ObjectiveConfig("data", "ce", decay=0.6, detach=detach), True)


def test_with_everything_detached_the_trunk_learns_as_without_heads() -> None:
    trunk = llama(True)
    heads = trained_heads(trunk, **HEADS["unrolled"])
    rows = pack(DOCUMENTS, 16)
    config = ObjectiveConfig(detach=("trunk", "embedding", "output"))
    found = gradients(loss_of(heads, batch_of(trunk, rows, True), config, True).total, trunk.model)
    batch = batch_of(trunk, rows, True)
    alone = joint_loss(trunk, None, batch, ObjectiveConfig(), counts_of(None, batch), 0.0, True)
    assert alone.depths == [] and len(alone.terms) == 1
    expected = gradients(alone.total, trunk.model)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("train_trunk", [False, True], ids=["frozen", "joint"])
@pytest.mark.parametrize(
    "extra", [{"own_output": True}, {"draft_ids": DRAFT_IDS}, {"own_output": True, "draft_ids": DRAFT_IDS}], ids=str
)
@pytest.mark.parametrize(("loss", "target"), [("ce", "data"), ("ce", "argmax"), ("kl", "distribution")])
def test_own_output_and_draft_vocabulary(loss: Any, target: Any, extra: dict[str, Any], train_trunk: bool) -> None:
    trunk = llama(train_trunk, dtype=torch.float64)
    heads = trained_heads(trunk, **HEADS["unrolled"], **extra)
    compare_with_plain(trunk, heads, ObjectiveConfig(target, loss, decay=0.6), train_trunk)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_the_main_loss_is_that_of_transformers(family: str) -> None:
    trunk = Trunk(FAMILIES[family]())
    batch = batch_of(trunk, pack([document(12, 1, num_prompt=5)], 12), True)
    labels = torch.where(batch.supervised_BT, batch.token_ids_BT, -100)
    expected = trunk.model(input_ids=batch.token_ids_BT, labels=labels).loss
    found = joint_loss(trunk, None, batch, ObjectiveConfig(), counts_of(None, batch), 0.0, True).total
    torch.testing.assert_close(found, expected)
    assert_same_gradients(gradients(found, trunk.model), gradients(expected, trunk.model))


@pytest.mark.parametrize("train_trunk", [False, True], ids=["frozen", "joint"])
@pytest.mark.parametrize("config", [ObjectiveConfig(), ObjectiveConfig("distribution")], ids=["auto", "distribution"])
def test_bf16_autocast(config: ObjectiveConfig, train_trunk: bool) -> None:
    """Autocast keeps the weights it has cast, so it matters which of several uses of one weight takes a gradient."""
    trunk = llama(train_trunk)
    heads = trained_heads(trunk, **HEADS["unrolled"])
    found = {}
    for bf16 in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = loss_of(heads, batch_of(trunk, pack(DOCUMENTS, 16), train_trunk), config, train_trunk).total
        assert loss.dtype == torch.float32
        found[bf16] = gradients(loss, trunk.model, heads)
    assert found[True].keys() == found[False].keys()
    for name, exact in found[False].items():
        assert torch.cosine_similarity(found[True][name].flatten(), exact.flatten(), dim=0) > 0.98, name


def test_without_gradients_the_loss_is_the_same() -> None:
    trunk = llama(True)
    heads = trained_heads(trunk, **HEADS["unrolled"])
    rows = pack(DOCUMENTS, 16)
    expected = loss_of(heads, batch_of(trunk, rows, True), ObjectiveConfig(), True)
    with torch.inference_mode():
        found = loss_of(heads, batch_of(trunk, rows, True), ObjectiveConfig(), True)
    assert not found.total.requires_grad
    torch.testing.assert_close(found.total, expected.total.detach())
    frozen = trained_heads(llama(), own_output=True).requires_grad_(False)
    assert not loss_of(frozen, batch_of(llama(), rows), ObjectiveConfig()).total.requires_grad


# What is counted beside the loss


@pytest.mark.parametrize("train_trunk", [False, True], ids=["frozen", "joint"])
@pytest.mark.parametrize("extra", [{}, {"own_output": True, "draft_ids": DRAFT_IDS}], ids=["all", "draft ids"])
def test_counts_are_those_of_the_probe(extra: dict[str, Any], train_trunk: bool) -> None:
    """On a text of the trunk's own choices, but for some tokens, and heads that are right now and then."""
    trunk = llama(train_trunk)
    heads = trained_heads(trunk, **HEADS["distinct"], **extra)
    with torch.no_grad():
        for parameter in (p for name, p in heads.named_parameters() if "output" not in name):
            parameter.mul_(0.9)
        ids = document(40, 3, num_prompt=2).token_ids[:2]
        while len(ids) < 40:
            logits_V = trunk.project(trunk.text_states(torch.tensor([ids]), torch.zeros(1, len(ids))).post_BTD[0, -1])
            ids.append(int(logits_V.argmax()) if len(ids) % 7 else 5)
    text = Document(ids, [True] * 40)
    expected = probe_documents(heads, [text], 40).depths
    found = loss_of(heads, batch_of(trunk, pack([text], 40), train_trunk), ObjectiveConfig(), train_trunk)
    chained = 1.0
    for k, (part, probed) in enumerate(zip(found.depths, expected, strict=True), start=1):
        assert part.num_valid == probed.num_positions == 40 - k - 1
        assert int(part.num_agreed) / part.num_valid == probed.agreement
        assert int(part.num_chain) == probed.num_chained_positions
        chained *= int(part.num_chained) / max(int(part.num_chain), 1)
        assert chained == pytest.approx(probed.chained)
    if train_trunk:
        assert found.main is not None
        assert int(found.main.num_agreed) == found.main.num_valid == 39
        assert int(found.main.num_correct) >= 39 - 40 // 7 - 1
    else:
        assert found.main is None


def test_the_heads_agree_with_the_trunk_as_often_as_counted() -> None:
    heads = trained_heads(llama(), **HEADS["distinct"], draft_ids=DRAFT_IDS)
    batch = batch_of(llama(), pack([document(40, seed) for seed in range(4)], 40))
    states = heads.training_states(batch.states, llama().embed(batch.token_ids_BT), batch.doc_ids_BT)
    drafts_BT = heads.to_token_ids(heads.project(states[0], 1).argmax(-1))
    batch.argmax_BT = torch.full_like(drafts_BT, -1)
    batch.argmax_BT[:, 1:39:2] = drafts_BT[:, 0:38:2]  # every second guess is right
    first = loss_of(heads, batch, ObjectiveConfig()).depths[0]
    assert (first.num_valid, int(first.num_agreed)) == (4 * 38, 4 * 19)
    assert int(first.num_correct) == int((drafts_BT[:, :38] == batch.token_ids_BT[:, 2:]).sum())


# Learning


def shares_correct(loss: Any) -> list[float]:
    parts = ([] if loss.main is None else [loss.main]) + loss.depths
    return [int(part.num_correct) / part.num_valid for part in parts]


@pytest.mark.parametrize("kind", ["unrolled", "distinct", "parallel", "medusa"])
def test_one_batch_is_learnt_at_all_depths_and_shifted_targets_are_chance(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked, "_CHUNK", 256)
    trunk = Trunk(tiny_llama())
    trunk.model.requires_grad_(True)
    heads = trained_heads(trunk, **HEADS[kind])
    rows = pack([document(30, seed) for seed in (1, 2)], 60)
    parameters = [*trunk.model.parameters(), *heads.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    config = ObjectiveConfig(mtp_lambda=1.0, reduction="sum", decay=1.0)
    for _ in range(60):
        optimizer.zero_grad()
        loss = loss_of(heads, batch_of(trunk, rows, True), config, True)
        loss.total.backward()
        optimizer.step()
    with torch.no_grad():
        batch = batch_of(trunk, rows, True)
        assert shares_correct(loss_of(heads, batch, config, True)) == [1.0] * (1 + heads.config.num_depths)
        # The control: labels one token further on. A loss that looked at the wrong token would have learnt those.
        one_ahead = objective.ahead_of
        monkeypatch.setattr(objective, "ahead_of", lambda values, valid, by: one_ahead(values.roll(-1, 1), valid, by))
        shifted = loss_of(heads, batch, config, True)
    assert max(shares_correct(shifted)) < 0.1
    assert float(shifted.total) > 10


# Schedules


def test_depths_that_are_out_are_not_computed() -> None:
    trunk = llama(True)
    heads = trained_heads(trunk, **HEADS["distinct"])
    config = ObjectiveConfig(curriculum="forward")
    for progress, num_active in ((0.0, 0), (0.5, 1), (0.9, 2)):
        found = loss_of(heads, batch_of(trunk, pack(DOCUMENTS, 16), True), config, True, progress=progress)
        assert len(found.depths) == num_active == found.phase.num_active
        grads = gradients(found.total, trunk.model, heads)
        assert {name.split(".")[2] for name in grads if name.startswith("1.")} == {"0", "1"} - set(
            "10"[: 2 - num_active]
        )


def test_lambda_and_loss_follow_the_schedule() -> None:
    trunk = llama(True)
    heads = trained_heads(trunk, **HEADS["medusa"])
    config = ObjectiveConfig("data", "ce_then_tv", mtp_lambda=0.4, lambda_schedule="linear", lambda_end=0.0)
    rows = pack(DOCUMENTS, 16)
    start, middle, late, end = (
        loss_of(heads, batch_of(trunk, rows, True), config, True, progress=p) for p in (0.0, 0.5, 0.8, 1.0)
    )
    assert start.main is not None and end.main is not None
    assert [part.phase.loss for part in (start, middle, late, end)] == ["ce", "ce", "tv", "tv"]
    assert all(0 < float(part.loss_sum.detach()) / part.num_valid < 1 for part in late.depths)
    main = start.main.loss_sum / start.main.num_valid
    torch.testing.assert_close(middle.total - main, (start.total - main) / 2)
    torch.testing.assert_close(end.total, main)


def test_the_main_count_divides_the_main_loss_alone() -> None:
    trunk = llama(True)
    heads = trained_heads(trunk, **HEADS["medusa"])
    batch = batch_of(trunk, pack(DOCUMENTS, 16), True)
    counts = count_valid(batch.doc_ids_BT, batch.supervised_BT, 3)
    once = loss_of(heads, batch, ObjectiveConfig(), True, counts)
    twice = loss_of(heads, batch, ObjectiveConfig(), True, counts * torch.tensor([2, 1, 1, 4]))
    for depth, factor in enumerate((2, 1, 1, 4)):
        torch.testing.assert_close(factor * twice.terms[depth], once.terms[depth])
