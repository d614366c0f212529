from __future__ import annotations

import math

import pytest
import torch

from foretell.decoding.logprobs import TokenLogprob, logprobs_of

P = (0.15, 0.50, 0.05, 0.30)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_order(dtype: torch.dtype) -> None:
    logits = torch.tensor([P, P[::-1]], dtype=dtype).log() + 3.0  # a shift changes nothing
    first, second = logprobs_of(logits, [2, 1], 3)
    assert (first.token_id, first.logprob) == (2, pytest.approx(math.log(0.05), abs=1e-6))
    assert [token_id for token_id, _ in first.top] == [1, 3, 0]
    assert [value for _, value in first.top] == pytest.approx([math.log(p) for p in (0.5, 0.3, 0.15)], abs=1e-6)
    assert [token_id for token_id, _ in second.top] == [2, 0, 3]
    assert second.logprob == pytest.approx(math.log(P[::-1][1]), abs=1e-6)


def test_rows_equal_log_softmax_of_the_raw_logits() -> None:
    logits = torch.randn(5, 200, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16) * 8
    expected = logits.float().log_softmax(-1)
    for row, entry in enumerate(logprobs_of(logits, [7, 0, 199, 7, 3], 4)):
        assert entry.logprob == pytest.approx(float(expected[row, entry.token_id]), abs=1e-5)
        assert [value for _, value in entry.top] == pytest.approx(expected[row].topk(4).values.tolist(), abs=1e-5)
        assert all(value == pytest.approx(float(expected[row, token]), abs=1e-5) for token, value in entry.top)


def test_how_many() -> None:
    logits = torch.zeros(1, 4)
    assert logprobs_of(logits, [3], 0) == [TokenLogprob(3, pytest.approx(-math.log(4)), [])]
    assert len(logprobs_of(logits, [3], 99)[0].top) == 4
    assert logprobs_of(logits[:0], [], 3) == []
