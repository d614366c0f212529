"""Near ties: where the trunk's two best tokens lie so close that rounding may put either first.

Logits are projected in fp32 from a state that a plain pass over the text gives anew. A tie is near below 1e-4 in fp32;
in a 16-bit type below 0.05, or two steps of that type at the best logit where that is more (bf16 logits from 8 to 16
lie 1/16 apart).
"""

from __future__ import annotations

import math

import torch

from foretell.models.trunk import Trunk

NEAR_TIE_GAP_FP32 = 1e-4
NEAR_TIE_GAP_HALF = 0.05
"""Logit gaps below which two tokens nearly tie, in fp32 (and wider) and, at the least, in 16-bit types."""
_NUM_STEPS = 2
"""Steps (ulp) of a 16-bit type that are excused: either logit may have been rounded up or down."""
_NUM_ROWS = 8192
"""Rows of the output head that are widened at a time."""


def near_tie_gap(dtype: torch.dtype, best_logit: float) -> float:
    """The gap below which a difference is excused for this type, where ``best_logit`` is the largest logit."""
    if dtype in (torch.float32, torch.float64):
        return NEAR_TIE_GAP_FP32
    step = torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(abs(best_logit))) if best_logit else 0.0
    return max(NEAR_TIE_GAP_HALF, _NUM_STEPS * step)


@torch.inference_mode()
def next_logits(trunk: Trunk, token_ids: list[int]) -> torch.Tensor:
    """Logits (V,) after ``token_ids`` by one plain pass without a cache, projected in float32 or wider.

    In bf16 the projection alone would round two tokens onto one value, or a step apart, and hide how near they are.
    """
    ids_BT = torch.tensor([token_ids], device=trunk.device)
    states = trunk.text_states(ids_BT, torch.zeros_like(ids_BT))
    state_D, head = states.post_BTD[0, -1], trunk.output_head
    wide = torch.promote_types(state_D.dtype, torch.float32)
    logits_V = torch.cat([rows.to(wide) @ state_D.to(wide) for rows in head.weight.split(_NUM_ROWS)])
    return trunk.scale_logits(logits_V if head.bias is None else logits_V + head.bias)
