"""The trial of a fused decoder: every layer computed both ways, on a few states at the first and the last positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from foretell.kernels.passes import KernelPass, Span
from foretell.kernels.stack import Layer, StackKernel
from foretell.models.copies import copy_without_hooks
from foretell.models.fused_layers import norm_of

if TYPE_CHECKING:
    from foretell.models.decoder import DecoderRunner

_NUM_TOKENS, _BLOCK_SIZE = 5, 16
_TOLERANCE, _OF_ONE = 1e-3, 2e-2
"""Of what a layer adds to a row of states, in the median and at most; dense weights keep the first in all rows.

States rounded to bytes may fall on the other side now and then; another formula differs in most rows.
"""


@torch.no_grad()
def computes_the_same(run: DecoderRunner, final: nn.Module, layers: Sequence[Layer]) -> bool:
    """True where ``layers`` are what the decoder's own layers compute, and the decoder is no more than those.

    Layer by layer, for differences in rounding grow on the way. What a family adds (other gains, activations, scales,
    scores that depend on the position) shows here.
    """
    last = int(getattr(run.config, "max_position_embeddings", 0) or _NUM_TOKENS)
    try:
        return all(_at(run, final, layers, start) for start in dict.fromkeys((0, max(0, last - _NUM_TOKENS))))
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError):
        return False


def distances(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Largest difference of each row, of the largest number in it; no number where one is none."""
    far = (one.float() - other.float()).abs().amax(-1) / other.float().abs().amax(-1).clamp(min=1e-9)
    return far.flatten()


def _at(run: DecoderRunner, final: nn.Module, layers: Sequence[Layer], start: int) -> bool:
    x = _states(run)
    given = x
    positions = torch.arange(start, start + _NUM_TOKENS).unsqueeze(0)
    mask = torch.ones(1, _NUM_TOKENS, _NUM_TOKENS, dtype=torch.bool).tril()
    decoder: Any = run.decoder
    for layer, own in zip(layers, decoder.layers, strict=True):
        wide = x.float()
        ours, _ = _kernels(decoder, layer, None, wide, positions, mask)
        theirs = _own(decoder, _widened(own, x.dtype), wide, positions, mask)
        far = distances(ours - wide, theirs - wide)
        is_rounded = any(matrix.is_rounded for matrix in layer.matrices)
        if not (far.median() <= _TOLERANCE and far.max() <= (_OF_ONE if is_rounded else _TOLERANCE)):
            return False
        x = _own(decoder, own, x, positions, mask)
    right = final(x)
    if not distances(run(given, positions, dict.fromkeys(run.kinds, mask)).post_BTD, right).max() <= 1e-6:
        return False
    if (norm := norm_of(final)) is None:
        return True
    pre, post = _kernels(decoder, layers[-1], norm, given.float(), positions, mask)
    return bool(distances(post, _widened(final, x.dtype)(pre)).max() <= _TOLERANCE)


def _states(run: DecoderRunner) -> torch.Tensor:
    """States of several sizes, whose mean is not zero."""
    decoder: Any = run.decoder
    weight = decoder.layers[0].self_attn.q_proj.weight
    x = torch.randn(1, _NUM_TOKENS, weight.shape[1], generator=torch.Generator().manual_seed(0)) + 0.5
    return (x * torch.logspace(-1, 1, _NUM_TOKENS).view(1, -1, 1)).to(weight.dtype)


def _widened(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """As it is in float32; else a copy in float32, for two ways of rounding to 16 bits are far from each other."""
    return module if dtype == torch.float32 else copy_without_hooks(module).float()


def _own(
    decoder: Any, layer: Any, x_BTD: torch.Tensor, positions_BT: torch.Tensor, mask_BTT: torch.Tensor
) -> torch.Tensor:
    rotary = decoder.rotary_emb(x_BTD, positions_BT)
    out: torch.Tensor = layer(
        x_BTD, attention_mask=mask_BTT.unsqueeze(1), position_ids=positions_BT, position_embeddings=rotary
    )
    return out


def _kernels(
    decoder: Any, layer: Layer, final: Any, x_BTD: torch.Tensor, positions_BT: torch.Tensor, mask_BTT: torch.Tensor
) -> tuple[torch.Tensor, Any]:
    """What the kernels make of one layer, and of the final norm behind it."""
    span = Span(
        torch.arange(_NUM_TOKENS),
        torch.zeros(1, 1, dtype=torch.long),
        F.pad(mask_BTT, (0, _BLOCK_SIZE - _NUM_TOKENS)),
    )
    keys, values = ([torch.zeros(layer.num_kv_heads, 1, _BLOCK_SIZE, layer.head_size)] for _ in range(2))
    cos, sin = decoder.rotary_emb(x_BTD, positions_BT)
    given = KernelPass([_NUM_TOKENS], (cos[0], sin[0]), {layer.kind: span}, keys, values)
    pre, post, _ = StackKernel([layer], final).run(x_BTD[0], given)
    return pre.unsqueeze(0), None if post is None else post.unsqueeze(0)
