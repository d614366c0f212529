"""Linear layers laid out for decoding: which kind, what it multiplies by, and how it is undone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from foretell.kernels.build import library
from foretell.models import packed
from foretell.models.packed import (
    KernelLinear,
    OneDNNLinear,
    PackedLinear,
    can_pack,
    has_bf16_units,
    pack_linears,
    smallest_pass,
    unpack_linears,
)

SHAPES = [(576, 576), (576, 192), (1536, 576), (577, 49), (30, 7)]
CPU = torch.device("cpu")


def linear(num_in: int, num_out: int, dtype: torch.dtype = torch.float32, bias: bool = False) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(num_in, num_out, bias=bias).to(dtype).requires_grad_(False)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_do_not_feel_each_other(shape: tuple[int, int]) -> None:
    """What decoding relies on: a row of a packed 16-bit product rounds alike beside 1 to 31 others."""
    if not can_pack(torch.bfloat16, CPU):
        pytest.skip("no C++ compiler, and this CPU packs no bf16 weights")
    stand_in = packed.packed(linear(*shape, torch.bfloat16))
    assert stand_in is not None
    x_MD = torch.randn(32, shape[0]).bfloat16()
    alone = stand_in(x_MD[: smallest_pass(stand_in)])
    for num_rows in range(smallest_pass(stand_in), 33):
        assert torch.equal(stand_in(x_MD[:num_rows])[: len(alone)], alone), f"{num_rows} rows"


def test_the_kind_that_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN where the CPU multiplies bfloat16 or no kernels are there; else the kernels; on other devices nothing."""
    float32, bfloat16 = linear(8, 8), linear(8, 8, torch.bfloat16)
    kinds = {True: KernelLinear, False: OneDNNLinear}
    assert type(packed.packed(float32)) is kinds[library() is not None]
    assert type(packed.packed(bfloat16)) is (OneDNNLinear if has_bf16_units() else kinds[library() is not None])
    monkeypatch.setattr(packed, "runs", lambda dtype, device: False)
    assert type(packed.packed(float32)) is OneDNNLinear
    assert packed.packed(nn.Linear(8, 8, device="meta")) is None and packed.packed(linear(8, 8, torch.float16)) is None


def test_the_smallest_pass_of_each_kind() -> None:
    assert smallest_pass(linear(8, 8, torch.bfloat16)) == 1
    assert smallest_pass(OneDNNLinear(linear(8, 8))) == 1
    if has_bf16_units():
        assert smallest_pass(OneDNNLinear(linear(8, 8, torch.bfloat16))) == 2


@pytest.mark.parametrize("precision", [None, "int8", "int4"])
@pytest.mark.parametrize("num_rows", [0, 1, 3, 64, 65, 80])
def test_a_model_packed_and_unpacked(precision: packed.Precision | None, num_rows: int) -> None:
    """Few rows and many give the same product; the weights themselves stay, for the embedding that shares them."""
    if library() is None:
        pytest.skip("no C++ compiler")
    model = nn.Sequential(linear(64, 48, bias=True), nn.ReLU(), linear(48, 5))
    weights = [model[0].weight, model[2].weight]
    x = torch.randn(num_rows, 2, 64)[:, 0]
    plain = model(x)
    assert pack_linears(model, precision) == 2 and pack_linears(model, precision) == 0
    far = {None: 1e-6, "int8": 0.02, "int4": 0.3}[precision]
    assert ((model(x) - plain).abs() < far).all() and model(x[0:1, None]).shape == plain[0:1, None].shape
    assert precision is None or not num_rows or not torch.equal(model(x), plain)
    assert ((model(x)[:1] - model(x[:1])).abs() < 1e-6).all()
    assert [model[0].weight, model[2].weight] == weights and isinstance(model[0], PackedLinear)
    assert (model[0].num_bytes > 0) == (precision is not None)
    assert type(copy.deepcopy(model)[0]) is nn.Linear
    unpack_linears(model)
    assert torch.equal(model(x), plain)
