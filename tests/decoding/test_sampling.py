from __future__ import annotations

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.sampling import draw, filtered_probs
from foretell.errors import ForetellError
from foretell.models.greedy import argmax

P = torch.tensor([0.15, 0.50, 0.05, 0.30], dtype=torch.float64)


def probs(**params: float) -> list[float]:
    return filtered_probs(P.log().unsqueeze(0), SamplingParams(**{"temperature": 1.0} | params))[0].tolist()  # type: ignore[arg-type]


def normalised(*values: float) -> object:
    return pytest.approx([value / sum(values) for value in values])


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, (0.15, 0.50, 0.05, 0.30)),
        ({"temperature": 0.5}, (0.15**2, 0.5**2, 0.05**2, 0.3**2)),
        ({"temperature": 2.0}, (0.15**0.5, 0.5**0.5, 0.05**0.5, 0.3**0.5)),
        ({"top_k": 1}, (0, 1, 0, 0)),
        ({"top_k": 2}, (0, 0.5, 0, 0.3)),
        ({"top_k": 4}, (0.15, 0.50, 0.05, 0.30)),
        ({"top_k": 400}, (0.15, 0.50, 0.05, 0.30)),
        ({"top_p": 0.4999}, (0, 1, 0, 0)),
        ({"top_p": 0.51}, (0, 0.5, 0, 0.3)),
        ({"top_p": 0.85}, (0.15, 0.5, 0, 0.3)),
        ({"top_p": 1e-9}, (0, 1, 0, 0)),
        ({"top_p": 0.9999}, (0.15, 0.50, 0.05, 0.30)),
        ({"min_p": 0.2}, (0.15, 0.5, 0, 0.3)),
        ({"min_p": 0.31}, (0, 0.5, 0, 0.3)),
        ({"min_p": 1.0}, (0, 1, 0, 0)),
        ({"top_k": 3, "top_p": 0.83}, (0, 0.5, 0, 0.3)),  # re-normalised: .526 + .316 is more than .83
        ({"top_k": 3, "top_p": 0.85}, (0.15, 0.5, 0, 0.3)),
        ({"top_k": 3, "min_p": 0.31}, (0, 0.5, 0, 0.3)),
        ({"temperature": 0.5, "top_p": 0.9}, (0, 0.5**2, 0, 0.3**2)),  # .685 + .247 is more than .9
        ({"temperature": 0.5, "min_p": 0.2}, (0, 0.5**2, 0, 0.3**2)),  # .062 is less than a fifth of .685
        ({"temperature": 0.0}, (0, 1, 0, 0)),
        ({"temperature": 0.0, "top_p": 0.1, "top_k": 1, "min_p": 1.0}, (0, 1, 0, 0)),
    ],
    ids=str,
)
def test_filters(params: dict[str, float], expected: tuple[float, ...]) -> None:
    assert probs(**params) == normalised(*expected)


def test_rows_are_apart() -> None:
    logits_NV = torch.stack([P.log(), P.flip(0).log(), torch.zeros(4, dtype=torch.float64)])
    params = SamplingParams(temperature=0.7, top_k=3, top_p=0.9, min_p=0.05)
    together = filtered_probs(logits_NV, params)
    apart = [filtered_probs(row.unsqueeze(0), params)[0] for row in logits_NV]
    torch.testing.assert_close(together, torch.stack(apart), rtol=0, atol=0)
    torch.testing.assert_close(together[0], together[1].flip(0))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [2e-4, 0.01, 1.0, 100.0])
def test_any_temperature_gives_a_law(dtype: torch.dtype, temperature: float) -> None:
    logits = torch.tensor([[1000.0, -1000.0, 999.0, float("-inf")]], dtype=dtype)
    for params in ({}, {"top_p": 0.5}, {"top_k": 2}, {"min_p": 0.5}):
        found = filtered_probs(logits, SamplingParams(temperature=temperature, **params))  # type: ignore[arg-type]
        assert found.isfinite().all() and found[0, 3] == 0
        assert float(found.sum()) == pytest.approx(1)
        assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_draw_follows_the_law_and_the_generator() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = [draw(P, generator) for _ in range(4000)]
    shares = torch.bincount(torch.tensor(tokens), minlength=4) / 4000
    assert float((shares - P).abs().sum()) / 2 < 0.03
    assert [draw(P, generator.manual_seed(0)) for _ in range(3)] == [tokens[0]] * 3
    assert {draw(torch.tensor([0.0, 0.0, 1e-30, 0.0]), generator) for _ in range(50)} == {2}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_give_no_token(bad: float) -> None:
    probs_V = filtered_probs(torch.tensor([[0.0, bad, 1.0]]), SamplingParams(temperature=1.0))[0]
    with pytest.raises(ForetellError, match="not finite"):
        draw(probs_V, torch.Generator())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_argmax_takes_the_first_of_equals(dtype: torch.dtype) -> None:
    for size in (4, 67, 5003):
        logits = torch.zeros(3, size, dtype=dtype)
        logits[1, [2, size - 1]] = 1.0
        logits[2, size - 1] = 1.0
        assert argmax(logits).tolist() == logits.argmax(-1).tolist() == [0, 2, size - 1]
