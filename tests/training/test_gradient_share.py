"""Shares in the trunk's gradient against a direct computation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foretell.models.trunk import Trunk
from foretell.training.gradient_share import gradient_share
from foretell.training.objective import joint_loss
from foretell.training.packing import pack
from foretell.training.recipe import ObjectiveConfig
from tests.fixtures import tiny_llama
from tests.training.batches import HEADS, batch_of, counts_of, document, gradients, loss_of, trained_heads

ROWS = pack([document(20, 1, num_prompt=3), document(12, 2)], 20)


@pytest.mark.parametrize("kind", HEADS)
def test_shares_are_those_of_a_direct_computation(kind: str) -> None:
    """Each loss on a pass of its own: a batch with no other, its weight and lambda by hand."""
    trunk = Trunk(tiny_llama())
    heads = trained_heads(trunk, **HEADS[kind])
    num_depths = heads.config.num_depths
    batch = batch_of(trunk, ROWS, True)
    loss = loss_of(heads, batch, ObjectiveConfig(mtp_lambda=0.5, decay=0.6, reduction="sum"), True)
    found = gradient_share(loss, batch.states)
    assert found.main + sum(found.depths) == pytest.approx(1)

    pulls = []
    for depth in range(num_depths + 1):
        batch = batch_of(trunk, ROWS, True)
        state = batch.states.below_BTD if kind == "below" else batch.states.pre_BTD
        assert state is not None
        alone = tuple(float(k == depth) for k in range(1, num_depths + 1))
        part = loss_of(heads, batch, ObjectiveConfig(mtp_lambda=1.0, weights=alone), True)
        main = joint_loss(trunk, None, batch, ObjectiveConfig(), counts_of(None, batch), 0.0, True)
        total = main.total if depth == 0 else 0.5 * 0.6 ** (depth - 1) * (part.total - main.total)
        pulls.append(torch.autograd.grad(total, state)[0].flatten())
    norms = torch.stack([pull.norm() for pull in pulls])
    assert [found.main, *found.depths] == pytest.approx((norms / norms.sum()).tolist(), rel=1e-3)
    cosines = [float(torch.cosine_similarity(pulls[0], pull, dim=0)) for pull in pulls[1:]]
    assert found.cosines == pytest.approx(cosines, abs=1e-3)
    assert all(share > 0.01 for share in found.depths)


def test_measuring_changes_no_gradient() -> None:
    trunk = Trunk(tiny_llama())
    heads = trained_heads(trunk, **HEADS["unrolled"])
    results = []
    for measured in (False, True):
        batch = batch_of(trunk, ROWS, True)
        loss = loss_of(heads, batch, ObjectiveConfig(), True)
        if measured:
            gradient_share(loss, batch.states)
        results.append(gradients(loss.total, trunk.model, heads))
    assert results[0].keys() == results[1].keys()
    assert all(torch.equal(grad, results[1][name]) for name, grad in results[0].items())


@pytest.mark.parametrize(
    ("config", "depths"),
    [({"detach": ("trunk",)}, [0.0] * 3), ({"mtp_lambda": 0.0}, [0.0] * 3), ({"curriculum": "forward"}, [])],
    ids=str,
)
def test_heads_that_do_not_pull_have_no_share(config: dict[str, Any], depths: list[float]) -> None:
    trunk = Trunk(tiny_llama())
    batch = batch_of(trunk, ROWS, True)
    loss = loss_of(trained_heads(trunk, **HEADS["unrolled"]), batch, ObjectiveConfig(**config), True)
    found = gradient_share(loss, batch.states)
    assert (found.main, found.depths, found.cosines) == (1.0, depths, depths)
