"""What decoding relies on: a row of a packed 16-bit product rounds alike beside 1 to 31 others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from foretell.models.packed import PackedLinear, can_pack, smallest_pass

SHAPES = [(576, 576), (576, 192), (576, 1536), (1536, 576), (576, 8192)]


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_do_not_feel_each_other(shape: tuple[int, int]) -> None:
    if not can_pack(torch.bfloat16, torch.device("cpu")):
        pytest.skip("this CPU packs no bf16 weights")
    torch.manual_seed(0)
    packed = PackedLinear(nn.Linear(*shape, bias=False).bfloat16().requires_grad_(False))
    x_MD = torch.randn(32, shape[0]).bfloat16()
    alone = packed(x_MD[: smallest_pass(packed)])
    for num_rows in range(smallest_pass(packed), 33):
        assert torch.equal(packed(x_MD[:num_rows])[: len(alone)], alone), f"{num_rows} rows"


def test_the_smallest_pass_of_each_kind() -> None:
    linear = nn.Linear(8, 8)
    assert smallest_pass(linear) == smallest_pass(linear.bfloat16()) == 1
    if can_pack(torch.bfloat16, torch.device("cpu")):
        assert smallest_pass(PackedLinear(linear.bfloat16())) == 2
    if can_pack(torch.float32, torch.device("cpu")):
        assert smallest_pass(PackedLinear(linear.float())) == 1
