"""Named transformations between conventions. Each says what it keeps: the same function, or nearly the same.

RMSNorm without gain is written x^ = x / rms(x).
"""

from __future__ import annotations

import torch
from torch import nn

from foretell.models.block import TrunkNorm


def swap_halves(weight: torch.Tensor) -> torch.Tensor:
    """eh_proj (D, 2D) for [embedding; hidden] -> the one for [hidden; embedding], and back. Exact."""
    first, second = weight.chunk(2, dim=1)
    return torch.cat([second, first], dim=1)


def centre(weight: torch.Tensor) -> torch.Tensor:
    """Gain g -> what a zero-centred norm stores, y = x^ (1 + w). Exact in float32, rounded once in the stored type."""
    return (weight.float() - 1).to(weight.dtype)


def uncentre(weight: torch.Tensor) -> torch.Tensor:
    """Offset from 1 -> gain; the reverse of ``centre``."""
    return (weight.float() + 1).to(weight.dtype)


def is_centred(norm: nn.Module) -> bool:
    """True where a norm's weight is an offset from 1: with weights of zero it still lets something through."""
    if isinstance(norm, TrunkNorm):
        norm = norm.borrowed
    zeros = {name: torch.zeros(value.shape) for name, value in norm.named_parameters()}  # the norm may have no values
    ones = torch.ones(1, 1, next(norm.parameters()).shape[-1])
    return bool(torch.func.functional_call(norm, zeros, (ones,)).abs().max() > 1e-6)


def rotary_pairs_to_halves(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Rows of a query or key projection from rotary pairs side by side to the halves of a head apart. Exact.

    (heads, hd/2, 2) -> (heads, 2, hd/2), as transformers' rotary embedding turns them.
    """
    rows, width = weight.shape
    return weight.view(num_heads, rows // num_heads // 2, 2, width).transpose(1, 2).reshape(rows, width)


def fold_gain_into_output(output_VD: torch.Tensor, gain_D: torch.Tensor) -> torch.Tensor:
    """Output head W and the final norm's gain g -> W diag(g), to stand behind a norm of gain 1.

    W (g x^) = (W diag(g)) x^: exact but for one rounding in the stored type. A tied output head has to be untied.
    """
    return (output_VD.float() * gain_D.float()).to(output_VD.dtype)


def take_gain_out(norm_D: torch.Tensor, gain_D: torch.Tensor) -> torch.Tensor:
    """A head's final norm n, before an output head that has the gain g in it -> n / g: (W diag(g)) (n / g) = W n.

    Exact but for rounding. hnorm, with g folded into it, then reads the state that is fed back as before.
    """
    return (norm_D.float() / gain_D.float()).to(norm_D.dtype)


def fold_gain_into_norm(hnorm_D: torch.Tensor, gain_D: torch.Tensor, rms: float) -> torch.Tensor:
    """hnorm's gain n for states after the final norm (gain g) -> the one for states before it: n g / ``rms``.

    n (g x^) / rms(g x^) = (n g / rms(g x^)) x^, where rms(g x^) differs from state to state; ``rms`` is its mean. Exact
    where g is constant; otherwise nearly the same, and to be trained on.
    """
    return (hnorm_D.float() * gain_D.float() / rms).to(hnorm_D.dtype)
