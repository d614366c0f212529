"""The kernels against torch: every kind of matrix, odd sizes, and rows that do not feel each other."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from foretell.kernels.build import library
from foretell.kernels.linear import GROUP, MAX_ROWS, Matrix

pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler")
SIZES = [(1, 8), (7, 30), (49, 577), (64, 64), (130, 96), (576, 1536)]
KINDS = ["float32", "bfloat16", "int8", "int4"]


def matrix(kind: str, num_out: int, num_in: int, bias: torch.Tensor | None = None) -> Matrix:
    torch.manual_seed(num_in)
    weight = torch.randn(num_out, num_in)
    if kind in ("int8", "int4"):
        return Matrix.quantised(weight, kind, bias)  # type: ignore[arg-type]
    return Matrix.dense(weight.to(getattr(torch, kind)), bias)


def exact_in_bytes(num_rows: int, num_in: int) -> torch.Tensor:
    """Rows that rounding to 8 bits leaves alone: whole numbers up to 127, which all groups have, by powers of two."""
    whole = torch.randint(-127, 128, (num_rows, -(-num_in // GROUP), GROUP)).float()
    whole[..., 0] = 127
    return (whole * 2.0 ** torch.randint(-9, -5, (*whole.shape[:2], 1))).flatten(1)[:, :num_in]


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_product(kind: str, size: tuple[int, int], with_bias: bool) -> None:
    """Of the values that the matrix says it stands for; and each row has the same bits beside any number of others."""
    x, bias = exact_in_bytes(MAX_ROWS, size[1]), torch.randn(size[0]) if with_bias else None
    weight = matrix(kind, *size, bias)
    y = weight.multiply(x)
    right = F.linear(x.double(), weight.to_dense(torch.float64), None if bias is None else bias.double())
    assert (y - right).abs().max() < 2e-6 * size[1]
    for num_rows in range(1, MAX_ROWS):
        assert torch.equal(weight.multiply(x[:num_rows]), y[:num_rows])
        assert torch.equal(weight.multiply(x[num_rows:]), y[num_rows:])


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_rows_are_rounded_too(kind: str) -> None:
    """To a 127th of the largest number in their group, and no further; many rows as few."""
    weight, x = matrix(kind, 40, 96), torch.randn(200, 96) * torch.logspace(-3, 3, 96)
    step = x.view(200, -1, GROUP).abs().amax(-1, keepdim=True) / 127
    most = (step.expand(-1, -1, GROUP).flatten(1) / 2) @ weight.to_dense(torch.float32).abs().t()
    y, right = weight.multiply(x), F.linear(x, weight.to_dense(torch.float32))
    assert ((y - right).abs() <= most * 1.01).all() and (y - right).abs().max() > 0
    assert torch.equal(y[50:51], weight.multiply(x[50:51]))


def test_the_type_of_the_input_is_kept() -> None:
    """Sums are float32 even so: a column of ones would stop at 256 in bfloat16."""
    ones = Matrix.dense(torch.ones(3, 1000, dtype=torch.bfloat16))
    y = ones.multiply(torch.ones(2, 1000, dtype=torch.bfloat16))
    assert y.dtype == torch.bfloat16 and y.tolist() == [[1000.0] * 3] * 2


def test_rows_that_are_not_side_by_side() -> None:
    weight, x = matrix("float32", 5, 12), torch.randn(12, 4).t()
    assert torch.equal(weight.multiply(x), weight.multiply(x.contiguous()))


def test_int4_meets_the_values_of_q4_1_again() -> None:
    """A scale and a least value in float16, and sixteen steps: as GGUF stores them."""
    torch.manual_seed(0)
    q = torch.randint(0, 16, (6, 4, 32))
    q[..., 0], q[..., 1] = 0, 15
    values = (torch.rand(6, 4, 1).half().float() * q + torch.randn(6, 4, 1).half().float()).view(6, 128)
    assert torch.allclose(Matrix.quantised(values, "int4").to_dense(torch.float32), values, rtol=0, atol=2e-3)


def test_how_far_rounding_goes() -> None:
    weight = torch.randn(64, 256)
    for precision, steps in (("int8", 254), ("int4", 15)):
        found = Matrix.quantised(weight, precision).to_dense(torch.float32)  # type: ignore[arg-type]
        width = weight.view(64, -1, 32).aminmax(dim=-1) if precision == "int4" else weight.abs().amax(1)
        span = (width.max - width.min).repeat_interleave(32, 1) if precision == "int4" else 2 * width.unsqueeze(1)
        assert ((found - weight).abs() <= span / steps * 0.5 + 2e-3).all()
    assert Matrix.quantised(torch.zeros(2, 64), "int8").to_dense(torch.float32).abs().max() == 0
    assert Matrix.quantised(torch.zeros(2, 64), "int4").to_dense(torch.float32).abs().max() == 0
    assert Matrix.quantised(torch.randn(2, 30), "int4").kind == "int8"  # no whole groups


def test_what_is_no_number_stays_none() -> None:
    x = torch.randn(2, 64)
    x[1, 3] = float("nan")
    y = matrix("int8", 4, 64).multiply(x)
    assert y[0].isfinite().all() and y[1].isnan().all()
