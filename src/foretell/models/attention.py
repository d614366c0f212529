"""One attention function for training and decoding, registered with transformers under the name "foretell".

Query heads that share a key head are folded into the query length, so keys and values are never repeated in memory.
In decoding, rows of different length are packed into one for the linear layers (``RowLayout``); here, and in the
kernels of whole passes (fused_stack), they are laid side by side again, each with keys of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

from foretell.kernels.attention import attends, attention

NAME = "foretell"


@dataclass
class RowLayout:
    """How the tokens of B rows are packed into one row of P: row after row, ``counts[b]`` of row b.

    ``unpack_BN``: packed index of every row's nodes, padded by its last one; ``pack_P`` the way back, as an index into
    (B * N). Both are None where the rows are equally long and reshaping does it.
    """

    counts: Sequence[int]
    unpack_BN: torch.Tensor | None
    pack_P: torch.Tensor | None

    @classmethod
    def build(cls, counts: Sequence[int], device: torch.device) -> RowLayout:
        """Layout of rows with so many tokens each."""
        num_nodes = max(counts)
        if min(counts) == num_nodes:
            return cls(counts, None, None)
        starts = [0, *accumulate(counts)]
        unpack = [[starts[b] + min(n, count - 1) for n in range(num_nodes)] for b, count in enumerate(counts)]
        pack = [b * num_nodes + n for b, count in enumerate(counts) for n in range(count)]
        return cls(counts, torch.tensor(unpack, device=device), torch.tensor(pack, device=device))

    def unpack(self, query: torch.Tensor) -> torch.Tensor:
        """(1, heads, P, d) -> (B, heads, N, d)."""
        packed = query[0].transpose(0, 1)
        if self.unpack_BN is None:
            return packed.reshape(len(self.counts), -1, *packed.shape[1:]).transpose(1, 2)
        return packed[self.unpack_BN.to(query.device)].transpose(1, 2)

    def pack(self, out: torch.Tensor) -> torch.Tensor:
        """(B, N, heads, d) -> (1, P, heads, d)."""
        flat = out.flatten(0, 1)
        return (flat if self.pack_P is None else flat[self.pack_P.to(out.device)]).unsqueeze(0)


ROW_LAYOUT: ContextVar[RowLayout | None] = ContextVar("row_layout", default=None)
"""The layout of the pass that runs now, or None where rows are not packed."""


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of (B, heads, N, d) queries over (B, kv_heads, S, d) keys; boolean mask (B, 1, N, S), True = may look.

    Without a mask it is causal over equal lengths. Returns (B, N, heads, d_value). In a packed pass the queries are
    (1, heads, P, d), and so is what returns. ``s_aux`` (heads): sinks, a score a head for a key that has no value
    (gpt-oss).
    """
    layout = ROW_LAYOUT.get()
    if layout is not None:
        query = layout.unpack(query)
    num_rows, num_heads, num_queries, head_dim = query.shape
    num_kv_heads, num_keys = key.shape[1], key.shape[2]
    groups = num_heads // num_kv_heads
    if attention_mask is None:
        attention_mask = torch.ones(num_queries, num_keys, dtype=torch.bool, device=query.device).tril(
            num_keys - num_queries
        )[None, None]
    if softcap is None and s_aux is None and not dropout and attends(query, key, value, attention_mask):
        out = attention(query, key, value, attention_mask, scaling if scaling is not None else head_dim**-0.5)
        return out if layout is None else layout.pack(out), None
    query = query.reshape(num_rows, num_kv_heads, groups * num_queries, head_dim)
    if groups > 1:
        shape = (attention_mask.shape[0], 1, groups, num_queries, num_keys)
        attention_mask = attention_mask.unsqueeze(2).expand(shape).flatten(2, 3)
    if softcap is None and s_aux is None:
        out = F.scaled_dot_product_attention(query, key, value, attention_mask, dropout_p=dropout, scale=scaling)
    else:
        scores = query @ key.transpose(-1, -2) * (scaling if scaling is not None else head_dim**-0.5)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        scores = scores.masked_fill(~attention_mask, float("-inf")).float()
        if s_aux is not None:
            sinks = s_aux.float().reshape(1, num_kv_heads, groups, 1).expand(num_rows, -1, -1, num_queries)
            scores = torch.cat([scores, sinks.reshape(num_rows, num_kv_heads, -1, 1)], dim=-1)
        out = scores.softmax(-1)[..., :num_keys].to(value.dtype) @ value
    out = out.reshape(num_rows, num_heads, num_queries, value.shape[-1])
    out = out.transpose(1, 2).contiguous()
    return out if layout is None else layout.pack(out), None


def register() -> None:
    """Make ``attn_implementation="foretell"`` known to transformers (idempotent)."""
    AttentionInterface.register(NAME, grouped_attention)
    AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


register()
