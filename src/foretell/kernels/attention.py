"""attention: few queries over cached keys on the CPU, with the same bits whatever else is in the pass."""

from __future__ import annotations

import ctypes

import torch

from foretell.kernels.build import kernels, library

MAX_QUERIES = 32
"""Most queries a row for which the kernel is used; more are arithmetic, which torch does faster."""
_KERNELS = {torch.float32: "attention_float32", torch.bfloat16: "attention_bfloat16"}


def attends(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> bool:
    """True where the kernel takes (B, heads, N, d) queries with this mask; it knows no gradients.

    Under autocast the three may be of different types: those are torch's.
    """
    given = (query, key, value)
    return (
        query.device.type == "cpu"
        and query.shape[2] <= MAX_QUERIES
        and query.dtype in _KERNELS
        and query.dtype == key.dtype == value.dtype
        and mask is not None
        and mask.dtype == torch.bool
        and not (torch.is_grad_enabled() and any(each.requires_grad for each in given))
        and library() is not None
    )


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float
) -> torch.Tensor:
    """(B, heads, N, d) over (B, kv_heads, S, d), mask (B or 1, 1, N, S), True = may look -> (B, N, heads, d_value).

    Where a query may look nowhere, zeros.
    """
    num_rows, num_heads, num_queries, size = query.shape
    num_kv_heads, num_keys = key.shape[1], key.shape[2]
    query = query.float()
    query, key, value = (each if each.stride(-1) == 1 else each.contiguous() for each in (query, key, value))
    mask = mask.expand(num_rows, 1, num_queries, num_keys)
    out = torch.empty(num_rows, num_queries, num_heads, value.shape[-1], device=query.device)
    sizes = (num_rows, num_heads, num_kv_heads, num_queries, num_keys, size, value.shape[-1])
    strides = (*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], mask.stride(0), *mask.stride()[2:])
    getattr(kernels(), _KERNELS[key.dtype])(
        *(ctypes.c_void_p(each.data_ptr()) for each in (query, key, value, mask, out)),
        ctypes.c_float(scale),
        (ctypes.c_int64 * len(sizes))(*sizes),
        (ctypes.c_int64 * len(strides))(*strides),
        ctypes.c_int(torch.get_num_threads()),
    )
    return out.to(query.dtype if key.dtype == torch.float32 else key.dtype)
