"""A plain autograd reference for heads that read no tokens: one document at a time, by transformers' own forward."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from foretell.models.heads import Heads
from foretell.models.trunk import Trunk

Gradients = dict[str, torch.Tensor]


def trunk_states(model: Any, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """What transformers says of one text (1, T): the states that heads may read."""
    kept: dict[str, torch.Tensor] = {}
    model.model.norm.register_forward_pre_hook(lambda _, args: kept.update(pre=args[0]))
    model.model.layers[-1].register_forward_pre_hook(lambda _, args: kept.update(below=args[0]))
    kept["post"] = model.model(input_ids=ids, use_cache=False).last_hidden_state
    return kept


def summed_loss(logits_KTV: list[torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    """Depth k at i against t_(i+k+1), by plain indexing. ``logits_KTV``: (T, V) a depth; ``ids``: (T,)."""
    total = torch.zeros((), dtype=torch.float64)
    for k, logits_TV in enumerate(logits_KTV, start=1):
        for i in range(len(ids) - k - 1):
            total = total + F.cross_entropy(logits_TV[i], ids[i + k + 1])
    return total


def heads_logits(heads: Heads, ids: torch.Tensor, doc_ids: torch.Tensor) -> list[torch.Tensor]:
    """[(T, V)] a depth, for one packed row."""
    states = heads.training_states(heads.trunk.text_states(ids, doc_ids), heads.trunk.embed(ids), doc_ids)
    return [heads.project(state_BTD[0], k) for k, state_BTD in enumerate(states, start=1)]


def packed_loss_and_gradients(
    heads: Heads, documents: list[torch.Tensor]
) -> tuple[torch.Tensor, Gradients, Gradients, list[torch.Tensor]]:
    """Of documents packed in one row: summed loss, gradients of heads and of trunk by name, logits a depth."""
    ids = torch.cat(documents).unsqueeze(0)
    doc_ids = torch.cat([torch.full_like(d, n) for n, d in enumerate(documents)]).unsqueeze(0)
    logits = heads_logits(heads, ids, doc_ids)
    sizes = [len(d) for d in documents]
    by_document = zip(*(x.split(sizes) for x in logits), strict=True)
    loss = torch.zeros((), dtype=torch.float64)
    for document, of_document in zip(documents, by_document, strict=True):
        loss = loss + summed_loss(list(of_document), document)
    heads_gradients = gradients(loss, dict(heads.named_parameters()))
    return loss.detach(), heads_gradients, gradients(loss, dict(heads.trunk.model.named_parameters())), logits


def gradients(loss: torch.Tensor, parameters: dict[str, torch.Tensor]) -> Gradients:
    """By name; zero where the loss does not depend on a parameter."""
    found = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True, allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if grad is None else grad
        for (name, parameter), grad in zip(parameters.items(), found, strict=True)
    }


def doubled(model: Any) -> Any:
    """The model in float64; experts by plain products, because grouped ones have no float64."""
    model.config._experts_implementation = "eager"
    return model.double()


def double_trunk(model: Any) -> Trunk:
    """In float64, with gradients."""
    return Trunk(doubled(model)).requires_grad_(True)


def assert_equal(found: Gradients, expected: Gradients, rtol: float = 1e-6) -> None:
    """Name by name, relative to the largest entry: norms and rotary embeddings round to float32 on the way."""
    assert found.keys() == expected.keys()
    for name, grad in found.items():
        atol = rtol * max(1.0, float(expected[name].abs().max()))
        torch.testing.assert_close(grad, expected[name], rtol=0, atol=atol, msg=lambda m, name=name: f"{name}: {m}")
