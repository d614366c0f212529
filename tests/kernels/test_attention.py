"""The attention kernel against torch's, with masks of all kinds."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from foretell.kernels.attention import attends, attention
from foretell.kernels.build import library

pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler")
SHAPES = [(1, 9, 3, 1, 64, 64, 64), (2, 4, 4, 5, 192, 64, 64), (3, 4, 2, 32, 100, 20, 36), (1, 1, 1, 3, 7, 3, 5)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Against double precision; then every query alone, with less behind what it sees: the same bits."""
    rows, heads, kv_heads, queries, keys, key_size, value_size = shape
    torch.manual_seed(0)
    query = torch.randn(rows, queries, heads, key_size).to(dtype).transpose(1, 2) * 3
    key, value = torch.randn(rows, kv_heads, keys, key_size).to(dtype), torch.randn(rows, kv_heads, keys, value_size)
    value = value.to(dtype)
    mask = torch.rand(rows, 1, queries, keys) < 0.7
    mask[..., 0] = True
    out = attention(query, key, value, mask, 0.3)
    assert out.dtype == dtype
    groups = heads // kv_heads
    right = F.scaled_dot_product_attention(
        query.double(),
        key.double().repeat_interleave(groups, 1),
        value.double().repeat_interleave(groups, 1),
        mask,
        scale=0.3,
    ).transpose(1, 2)
    assert (out - right).abs().max() < (2e-6 if dtype == torch.float32 else 0.02)
    last = int(mask[0, 0].nonzero()[:, 1].max()) + 1
    for n in range(queries):
        alone = attention(query[:, :, n : n + 1], key, value, mask[:, :, n : n + 1], 0.3)
        assert torch.equal(alone[:, 0], out[:, n])
        cut = attention(
            query[:1, :, n : n + 1], key[:1, :, :last], value[:1, :, :last], mask[:1, :, n : n + 1, :last], 0.3
        )
        assert torch.equal(cut[0, 0], out[0, n])


def test_extreme_scores_and_faults() -> None:
    key = torch.tensor([[300.0], [-300.0], [0.0]]).view(1, 1, 3, 1)
    value = torch.tensor([[1.0], [2.0], [3.0]]).view(1, 1, 3, 1)
    mask = torch.ones(1, 1, 2, 3, dtype=torch.bool)
    query = torch.tensor([[1.0], [-1.0]]).view(1, 1, 2, 1)
    assert attention(query, key, value, mask, 1.0).flatten().tolist() == [1.0, 2.0]
    assert attention(query, key, value, torch.zeros_like(mask), 1.0).flatten().tolist() == [0.0, 0.0]
    query[0, 0, 1] = float("nan")
    out = attention(query, key, value, mask, 1.0).flatten()
    assert out[0] == 1.0 and out[1].isnan()
    value[0, 0, 1] = float("nan")  # behind the mask it is not even read
    mask[..., 1] = False
    assert attention(query[:, :, :1], key, value, mask[:, :, :1], 1.0).item() == 1.0


def test_what_it_takes() -> None:
    query, mask = torch.randn(1, 2, 4, 8), torch.ones(1, 1, 4, 4, dtype=torch.bool)
    key = value = torch.randn(1, 2, 4, 8)
    assert attends(query, key, value, mask)
    assert not attends(query, key, value, None) and not attends(query, key, value, mask.float())
    assert not attends(query.double(), key.double(), value.double(), mask)
    assert not attends(query.repeat(1, 1, 9, 1), key, value, mask)
    for types in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):  # autocast
        three = [each.bfloat16() if half else each for each, half in zip((query, key, value), types, strict=True)]
        assert not attends(*three, mask)
    for index in range(3):
        three = [query, key, value]
        three[index] = three[index].clone().requires_grad_()
        assert not attends(*three, mask)
        with torch.no_grad():
            assert attends(*three, mask)
