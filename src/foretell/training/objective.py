"""The heads' loss: per depth, over valid positions only, in chunks, divided by the count of the whole window.

L = sum_k weight_k * (sum over valid positions of loss_k) / (number of valid positions of depth k). The vocabulary is
never projected for more than one chunk of one depth at a time.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from foretell.models.decoder import States
from foretell.models.greedy import argmax
from foretell.models.heads import Heads
from foretell.training.recipe import ObjectiveConfig
from foretell.training.targets import ahead_of, valid_mask

_CHUNK = 256
"""Rows projected to the vocabulary at a time."""


@dataclass
class Batch:
    """Packed rows: token ids, document ids (-1 = padding), which tokens are labels; and what the trunk made of them.

    ``argmax_BT[i]`` is the trunk's own choice for token i+1. ``rows_B``: which rows of the data these are, if known.
    """

    token_ids_BT: torch.Tensor
    doc_ids_BT: torch.Tensor
    supervised_BT: torch.Tensor
    states: States
    argmax_BT: torch.Tensor
    rows_B: torch.Tensor | None = None


@dataclass
class DepthLoss:
    """Sums over the valid positions of one depth; ``agreed`` counts drafts equal to the trunk's argmax."""

    loss_sum: torch.Tensor
    num_valid: int
    num_agreed: torch.Tensor


def depth_weights(config: ObjectiveConfig, num_depths: int) -> list[float]:
    """Weight of each depth: the list given, or decay^(k-1) normalised to sum 1 (decay 1 is the mean of DeepSeek-V3)."""
    if config.weights:
        return list(config.weights)
    raw = [config.decay**k for k in range(num_depths)]
    return [w / sum(raw) for w in raw]


def count_valid(doc_ids_BT: torch.Tensor, supervised_BT: torch.Tensor, num_depths: int) -> torch.Tensor:
    """(K,) valid positions of each depth: the denominators."""
    return torch.stack([valid_mask(doc_ids_BT, supervised_BT, k).sum() for k in range(1, num_depths + 1)])


def heads_loss(
    heads: Heads, batch: Batch, config: ObjectiveConfig, counts_K: torch.Tensor
) -> tuple[torch.Tensor, list[DepthLoss]]:
    """Joint loss of all depths. ``counts_K``: valid positions of the whole accumulation window (``count_valid``).

    A window without a valid position gives loss 0 with finite (zero) gradients, and a warning.
    """
    embeddings_BTD = heads.trunk.embed(batch.token_ids_BT)
    states = heads.training_states(batch.states, embeddings_BTD, batch.doc_ids_BT)
    weights = depth_weights(config, len(states))
    if int(counts_K.sum()) == 0:
        rows = range(len(batch.token_ids_BT)) if batch.rows_B is None else batch.rows_B.tolist()
        warnings.warn(
            "no token of this batch is a target at any depth (all masked, or too short); loss is 0. "
            f"Its rows: {', '.join(map(str, rows))}",
            stacklevel=2,
        )
    total = states[0].new_zeros((), dtype=torch.float32)
    parts = []
    for k, state_BTD in enumerate(states, start=1):
        part = depth_loss(heads, state_BTD, batch, k, config.target)
        total = total + weights[k - 1] * part.loss_sum / counts_K[k - 1].clamp(min=1)
        parts.append(part)
    return total, parts


def depth_loss(heads: Heads, state_BTD: torch.Tensor, batch: Batch, depth: int, target: str) -> DepthLoss:
    """Loss sum of one depth against the data's tokens, the trunk's argmax, or the trunk's distribution."""
    valid_BT = valid_mask(batch.doc_ids_BT, batch.supervised_BT, depth)
    states_ND = state_BTD[valid_BT]
    argmax_N = heads.to_draft_ids(ahead_of(batch.argmax_BT, valid_BT, depth))
    if target == "distribution":
        goals: torch.Tensor = ahead_of(batch.states.post_BTD, valid_BT, depth)
    elif target == "argmax":
        goals = argmax_N
    else:
        goals = heads.to_draft_ids(ahead_of(batch.token_ids_BT, valid_BT, depth + 1))
    parameters = [] if heads.output is None else [p for p in heads.output.parameters() if p.requires_grad]
    loss_sum, num_agreed = _ChunkedLoss.apply(heads, target, goals, argmax_N, states_ND, *parameters)  # type: ignore[no-untyped-call]
    return DepthLoss(loss_sum, int(valid_BT.sum()), num_agreed)


class _ChunkedLoss(torch.autograd.Function):
    """Sum of the loss over rows; the gradient is taken chunk by chunk in the forward pass, so nothing is recomputed.

    Small chunks stay in the processor's cache: the vocabulary work gets several times cheaper than in one big softmax.
    """

    @staticmethod
    def forward(
        ctx: Any,
        heads: Heads,
        target: str,
        goals: torch.Tensor,
        argmax_N: torch.Tensor,
        states_ND: torch.Tensor,
        *parameters: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        loss_sum = torch.zeros((), dtype=torch.float32, device=states_ND.device)
        num_agreed = torch.zeros((), dtype=torch.long, device=states_ND.device)
        state_grad_ND = torch.zeros_like(states_ND)
        parameter_grads = [torch.zeros_like(p) for p in parameters]
        for start in range(0, len(states_ND), _CHUNK):
            part = slice(start, start + _CHUNK)
            with torch.enable_grad():
                chunk_ND = states_ND[part].detach().requires_grad_()
                chunk_loss, chunk_agreed = _chunk_loss(heads, chunk_ND, goals[part], argmax_N[part], target)
            grads = torch.autograd.grad(chunk_loss, [chunk_ND, *parameters])
            state_grad_ND[part] = grads[0]
            for total, grad in zip(parameter_grads, grads[1:], strict=True):
                total += grad
            loss_sum += chunk_loss.detach()
            num_agreed += chunk_agreed
        ctx.save_for_backward(state_grad_ND, *parameter_grads)
        ctx.mark_non_differentiable(num_agreed)
        return loss_sum, num_agreed

    @staticmethod
    def backward(ctx: Any, loss_grad: torch.Tensor, _agreed_grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return (None, None, None, None, *[grad * loss_grad for grad in ctx.saved_tensors])


def _chunk_loss(
    heads: Heads, states_ND: torch.Tensor, goals: torch.Tensor, argmax_N: torch.Tensor, target: str
) -> tuple[torch.Tensor, torch.Tensor]:
    logits_NV = heads.project(states_ND).float()
    num_agreed = (argmax(logits_NV.detach()) == argmax_N).sum()
    if target == "distribution":
        with torch.no_grad():
            log_p_NV = heads.trunk_draft_logits(goals).float().log_softmax(-1)
        loss = F.kl_div(logits_NV.log_softmax(-1), log_p_NV, reduction="sum", log_target=True)
    else:
        loss = F.cross_entropy(logits_NV, goals, reduction="sum", ignore_index=-100)
    return loss, num_agreed
