"""Losses of one depth, summed over rows: against tokens, or against the trunk's distribution p.

q is the head's distribution. With a reduced draft vocabulary p is the trunk's softmax over the draft vocabulary alone,
renormalised: heads cannot say the other tokens, and learn to share out what is left as the trunk does. So "tv" is then
what sampling would reject of a trunk that says draft tokens only, a little less than it rejects of the real one.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from foretell.models.heads import Heads
from foretell.training.chunked import Score
from foretell.training.recipe import LossName


def cross_entropy(logits_NV: torch.Tensor, targets_N: torch.Tensor) -> torch.Tensor:
    """-log q(target); a target of -100 is none, and adds 0."""
    return F.cross_entropy(logits_NV, targets_N, reduction="sum", ignore_index=-100)


def kl(logits_NV: torch.Tensor, log_p_NV: torch.Tensor) -> torch.Tensor:
    """KL(p || q): "soft_ce" less the trunk's entropy, so 0 is the best there is; the gradients are the same."""
    return F.kl_div(logits_NV.log_softmax(-1), log_p_NV, reduction="sum", log_target=True)


def soft_ce(logits_NV: torch.Tensor, log_p_NV: torch.Tensor) -> torch.Tensor:
    """Cross-entropy -sum p log q."""
    return -(log_p_NV.exp() * logits_NV.log_softmax(-1)).sum()


def reverse_kl(logits_NV: torch.Tensor, log_p_NV: torch.Tensor) -> torch.Tensor:
    """KL(q || p): prefers one of the trunk's choices to a spread over all."""
    return F.kl_div(log_p_NV, logits_NV.log_softmax(-1), reduction="sum", log_target=True)


def tv(logits_NV: torch.Tensor, log_p_NV: torch.Tensor) -> torch.Tensor:
    """Total variation 1/2 sum |p - q| = 1 - sum min(p, q): what speculative sampling rejects at temperature 1.

    Its gradient vanishes where p and q hardly overlap, so it is for heads that "ce" has trained ("ce_then_tv").
    """
    return 0.5 * (log_p_NV.exp() - logits_NV.softmax(-1)).abs().sum()


AGAINST_TRUNK = {"kl": kl, "soft_ce": soft_ce, "reverse_kl": reverse_kl, "tv": tv}
"""By name, the losses against the trunk's distribution: (logits (N, V), log p (N, V)) -> sum over the rows."""


def against_trunk(heads: Heads, loss: LossName) -> Score:
    """``loss`` against the distributions of the trunk's post-norm states (N, D), without a gradient to the trunk."""

    def score(logits_NV: torch.Tensor, states_ND: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            log_p_NV = heads.trunk_draft_logits(states_ND).to(logits_NV.dtype).log_softmax(-1)
        return AGAINST_TRUNK[loss](logits_NV, log_p_NV)

    return score
