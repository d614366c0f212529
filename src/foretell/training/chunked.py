"""Loss over the vocabulary, chunk by chunk: no depth's logits ever exist whole, and nothing is recomputed.

The gradient of a chunk is taken in the forward pass, as soon as its logits are there. Small chunks stay in the
processor's cache: the vocabulary work gets several times cheaper than in one big softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from foretell.models.greedy import argmax
from foretell.models.heads import Heads
from foretell.models.trunk import Trunk

_CHUNK = 256
"""Rows projected to the vocabulary at a time."""

Score = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(logits (N, V), goals (N, ...)) -> loss, summed over the rows."""


@dataclass
class Projection:
    """How states become logits, and the parameters on the way that take a gradient from this loss."""

    project: Callable[[torch.Tensor], torch.Tensor]
    parameters: list[nn.Parameter]


def trunk_projection(trunk: Trunk) -> Projection:
    """The trunk's own output head."""
    return Projection(trunk.project, _trainable(trunk.output_head.parameters()))


def heads_projection(heads: Heads, depth: int, detached: bool) -> Projection:
    """What projects ``depth``: the heads' own output matrix, or the trunk's, which if ``detached`` learns nothing."""
    parameters = _trainable(heads.output_parameters(depth))
    if not (heads.output_parameters(depth) or detached):
        parameters = _trainable(heads.trunk.output_head.parameters())
    return Projection(partial(heads.project, depth=depth), parameters)


def _trainable(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    return [p for p in parameters if p.requires_grad]


class OutputGradients:
    """One buffer for each output parameter, however many losses project through it: V x D once, not once a depth."""

    def __init__(self) -> None:
        self._sums: dict[nn.Parameter, torch.Tensor] = {}

    def open(self, parameters: list[nn.Parameter]) -> list[torch.Tensor]:
        """The buffers to add to, in float32 or wider, since many small parts are summed."""
        for p in parameters:
            if p not in self._sums:
                self._sums[p] = torch.zeros_like(p, dtype=widened(p.dtype), requires_grad=False)
        return [self._sums[p] for p in parameters]

    def term(self, like: torch.Tensor) -> torch.Tensor:
        """A zero to add to the total loss: its gradient is what the losses left here."""
        if not self._sums:
            return like.new_zeros(())
        return _Deposit.apply(like.new_zeros(()), list(self._sums.values()), *self._sums)  # type: ignore[no-untyped-call]


def widened(dtype: torch.dtype) -> torch.dtype:
    """At least float32."""
    return torch.promote_types(dtype, torch.float32)


def chunked_loss(
    projection: Projection,
    score: Score,
    goals: torch.Tensor,
    states_ND: torch.Tensor,
    scale: float,
    gradients: OutputGradients,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss sum over rows, and the argmax of every row's logits (N,).

    The sum carries the gradient of the states; that of ``projection.parameters``, times ``scale``, goes to
    ``gradients``. Under no_grad neither is computed.
    """
    takes_grad = torch.is_grad_enabled()
    return _ChunkedLoss.apply(projection, score, goals, scale, gradients, takes_grad, states_ND)  # type: ignore[no-untyped-call]


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projection: Projection,
        score: Score,
        goals: torch.Tensor,
        scale: float,
        gradients: OutputGradients,
        takes_grad: bool,
        states_ND: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        loss_sum = torch.zeros((), dtype=widened(states_ND.dtype), device=states_ND.device)
        drafted_N = torch.empty(len(states_ND), dtype=torch.long, device=states_ND.device)
        state_grad_ND = torch.zeros_like(states_ND) if takes_grad else None
        parameters = projection.parameters if takes_grad else None
        buffers = gradients.open(parameters or [])
        for start in range(0, len(states_ND), _CHUNK):
            part = slice(start, start + _CHUNK)
            chunk_loss, drafted_N[part], grads = _chunk(projection, score, goals[part], states_ND[part], parameters)
            loss_sum += chunk_loss
            if state_grad_ND is not None:
                assert grads[0] is not None
                state_grad_ND[part] = grads[0]
                for buffer, grad in zip(buffers, grads[1:], strict=True):
                    if grad is not None:  # an output bias, which a reduced draft vocabulary leaves out
                        buffer.add_(grad, alpha=scale)
        if state_grad_ND is not None:
            ctx.save_for_backward(state_grad_ND)
        ctx.mark_non_differentiable(drafted_N)
        return loss_sum, drafted_N

    @staticmethod
    def backward(ctx: Any, loss_grad: torch.Tensor, _drafted_grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (state_grad_ND,) = ctx.saved_tensors
        return (*[None] * 6, state_grad_ND * loss_grad)


def _chunk(
    projection: Projection,
    score: Score,
    goals: torch.Tensor,
    states_ND: torch.Tensor,
    parameters: list[nn.Parameter] | None,
) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor | None, ...]]:
    """Loss sum, argmax and gradients (of states, then parameters; none for None) of a few rows; its logits end here."""
    chunk_ND = states_ND.detach()
    with torch.set_grad_enabled(parameters is not None):
        logits_NV = projection.project(chunk_ND.requires_grad_(parameters is not None))
        logits_NV = logits_NV.to(widened(logits_NV.dtype))
        loss = score(logits_NV, goals)
    grads: tuple[torch.Tensor | None, ...] = ()
    if parameters is not None:
        grads = torch.autograd.grad(loss, [chunk_ND, *parameters], allow_unused=True)
    return loss.detach(), argmax(logits_NV.detach()), grads


class _Deposit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, zero: torch.Tensor, sums: list[torch.Tensor], *parameters: nn.Parameter) -> torch.Tensor:
        ctx.dtypes = [p.dtype for p in parameters]
        ctx.save_for_backward(*sums)
        return zero.clone()

    @staticmethod
    def backward(ctx: Any, loss_grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # In place: the sums are as large as the output matrices. A second backward pass raises, as it must.
        grads = [g.mul_(loss_grad).to(t) for g, t in zip(ctx.saved_tensors, ctx.dtypes, strict=True)]
        return (None, None, *grads)
