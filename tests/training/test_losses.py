"""Each loss by its formula, on distributions by hand."""

from __future__ import annotations

import pytest
import torch

from foretell.training import losses
from foretell.training.losses import AGAINST_TRUNK, cross_entropy, kl, reverse_kl, soft_ce, tv


def by_hand(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


P, Q = by_hand([0.5, 0.3, 0.2]), by_hand([0.2, 0.2, 0.6])


def test_values_by_hand() -> None:
    assert float(tv(Q, P)) == pytest.approx(0.4)  # 1 - (0.2 + 0.2 + 0.2)
    assert float(kl(Q, P)) == pytest.approx(0.3601, abs=1e-4)
    assert float(soft_ce(Q, P)) - float(kl(Q, P)) == pytest.approx(1.0297, abs=1e-4)  # the entropy of p
    assert float(reverse_kl(Q, P)) == float(kl(P, Q)) == pytest.approx(0.3948, abs=1e-4)
    assert float(cross_entropy(Q, torch.tensor([2]))) == pytest.approx(0.5108, abs=1e-4)


def test_total_variation_is_what_sampling_rejects() -> None:
    logits_NV, others_NV = torch.randn(2, 50, 30, generator=torch.Generator().manual_seed(0)) * 3
    accepted = torch.minimum(logits_NV.softmax(-1), others_NV.softmax(-1)).sum()
    torch.testing.assert_close(tv(logits_NV, others_NV.log_softmax(-1)), 50 - accepted)


@pytest.mark.parametrize("name", AGAINST_TRUNK)
def test_the_trunks_own_distribution_is_the_best(name: str) -> None:
    logits_NV = torch.randn(4, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    at_best = logits_NV.clone().requires_grad_()
    loss = AGAINST_TRUNK[name](at_best + 5.0, logits_NV.log_softmax(-1))  # logits have no zero
    (grad,) = torch.autograd.grad(loss, at_best)
    assert float(loss.detach()) == pytest.approx(0 if name != "soft_ce" else float(entropies(logits_NV)), abs=1e-9)
    assert float(grad.abs().max()) < (0.2 if name == "tv" else 1e-9)  # tv has a corner there
    worse = AGAINST_TRUNK[name](logits_NV + torch.randn_like(logits_NV), logits_NV.log_softmax(-1))
    assert float(worse) > float(loss.detach()) + 0.1


def entropies(logits_NV: torch.Tensor) -> torch.Tensor:
    return -(logits_NV.softmax(-1) * logits_NV.log_softmax(-1)).sum()


@pytest.mark.parametrize("loss", [cross_entropy, *AGAINST_TRUNK.values()])
def test_rows_add_up_and_none_is_zero(loss: object) -> None:
    logits_NV = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    goals = torch.arange(6) if loss is cross_entropy else torch.randn_like(logits_NV).log_softmax(-1)
    assert callable(loss)
    torch.testing.assert_close(
        loss(logits_NV, goals), sum(loss(logits_NV[i : i + 1], goals[i : i + 1]) for i in range(6))
    )
    assert float(loss(logits_NV[:0], goals[:0])) == 0


def test_a_token_that_is_no_target_adds_nothing() -> None:
    logits_NV = Q.clone().requires_grad_()
    loss = cross_entropy(logits_NV, torch.tensor([-100]))
    loss.backward()
    assert float(loss.detach()) == 0 and logits_NV.grad is not None and float(logits_NV.grad.abs().sum()) == 0


def test_certain_distributions_stay_finite() -> None:
    sure_NV = torch.tensor([[200.0, -200.0, 0.0]])
    for name, loss in losses.AGAINST_TRUNK.items():
        logits_NV = (-sure_NV).clone().requires_grad_()
        value = loss(logits_NV, sure_NV.log_softmax(-1))
        value.backward()
        assert value.isfinite() and logits_NV.grad is not None and logits_NV.grad.isfinite().all(), name
