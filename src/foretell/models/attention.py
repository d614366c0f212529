"""One attention function for training and decoding, registered with transformers under the name "foretell".

Query heads that share a key head are folded into the query length, so keys and values are never repeated in memory.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

NAME = "foretell"


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of (B, heads, N, d) queries over (B, kv_heads, S, d) keys; boolean mask (B, 1, N, S), True = may look.

    Without a mask it is causal over equal lengths. Returns (B, N, heads, d_value).
    """
    if kwargs.get("s_aux") is not None:
        raise NotImplementedError("attention sinks are not supported")
    num_rows, num_heads, num_queries, head_dim = query.shape
    num_kv_heads, num_keys = key.shape[1], key.shape[2]
    groups = num_heads // num_kv_heads
    if attention_mask is None:
        attention_mask = torch.ones(num_queries, num_keys, dtype=torch.bool, device=query.device).tril(
            num_keys - num_queries
        )[None, None]
    query = query.reshape(num_rows, num_kv_heads, groups * num_queries, head_dim)
    if groups > 1:
        shape = (attention_mask.shape[0], 1, groups, num_queries, num_keys)
        attention_mask = attention_mask.unsqueeze(2).expand(shape).flatten(2, 3)
    if softcap is None:
        out = F.scaled_dot_product_attention(query, key, value, attention_mask, dropout_p=dropout, scale=scaling)
    else:
        scores = query @ key.transpose(-1, -2) * (scaling if scaling is not None else head_dim**-0.5)
        scores = (softcap * torch.tanh(scores / softcap)).masked_fill(~attention_mask, float("-inf"))
        out = scores.float().softmax(-1).to(value.dtype) @ value
    out = out.reshape(num_rows, num_heads, num_queries, value.shape[-1])
    return out.transpose(1, 2).contiguous(), None


def register() -> None:
    """Make ``attn_implementation="foretell"`` known to transformers (idempotent)."""
    AttentionInterface.register(NAME, grouped_attention)
    AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


register()
