"""Who pulls the trunk: each depth's share in the gradient that reaches the trunk's last state.

Heads are meant to enrich the trunk, not to take it over: a large share, or a negative cosine to the main loss, says
that lambda or a depth's weight is too high.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from foretell.models.decoder import States
from foretell.training.chunked import widened
from foretell.training.objective import JointLoss


@dataclass
class GradientShare:
    """Norms of d(weighted loss)/d(state) over their sum: the main loss's, and every active depth's; all 0 without any.

    ``cosines``: of each depth's gradient to the main loss's, 0 where one of them is 0.
    """

    main: float
    depths: list[float]
    cosines: list[float]


def gradient_share(loss: JointLoss, states: States) -> GradientShare:
    """Shares in the gradient of ``states``, the trained trunk's of this batch: before the final norm, or the last layer
    where heads read there. Call it before ``loss.total.backward()``; it takes a backward pass a depth.
    """
    state_BTD = states.pre_BTD if states.below_BTD is None else states.below_BTD
    flat, norms = [], []
    for term in loss.terms:
        grad = None
        if term.requires_grad:
            (grad,) = torch.autograd.grad(term, state_BTD, retain_graph=True, allow_unused=True)
        grad = torch.zeros_like(state_BTD) if grad is None else grad  # None: cut off by ``detach``
        flat.append(grad.to(widened(grad.dtype)).flatten())
        norms.append(float(flat[-1].norm()))
    main, *depths = [norm / (sum(norms) or 1.0) for norm in norms]
    cosines = [
        float(flat[0] @ grad) / (norms[0] * norm) if norms[0] * norm else 0.0
        for grad, norm in zip(flat[1:], norms[1:], strict=True)
    ]
    return GradientShare(main, depths, cosines)
