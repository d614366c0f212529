"""Warnings where a measurement means nothing (C42)."""

from __future__ import annotations

import math

import pytest
import torch

from foretell.analysis.measured_texts import reasons_against
from foretell.evaluation.nll import mean_nll
from foretell.models.trunk import Trunk
from tests.fixtures import byte_tokenizer, script_trunk, tiny_llama


def test_mean_nll_by_hand() -> None:
    """A trunk that knows its alphabet finds it certain, and anything else all but impossible."""
    trunk = script_trunk("abcdefgha", max_positions=64)
    right, wrong = (byte_tokenizer()(text, add_special_tokens=False).input_ids for text in ("abcd", "acbd"))
    assert mean_nll(trunk, [right, right]) == pytest.approx(0, abs=1e-3)
    assert mean_nll(trunk, [wrong]) > 10  # type: ignore[operator]
    assert mean_nll(trunk, [[5], []]) is None


def test_random_prompts_and_repeated_outputs() -> None:
    trunk = Trunk(tiny_llama(), byte_tokenizer(), name="tiny")
    draw = torch.Generator().manual_seed(0)
    prompts = [torch.randint(0, 256, (40,), generator=draw).tolist() for _ in range(4)]
    nll = mean_nll(trunk, prompts)
    assert nll is not None and nll > math.log(trunk.vocab_size)
    found = reasons_against(trunk, prompts, [[1, 2] * 20] * 4)
    assert len(found) == 2 and "repeat themselves" in found[1]
    knows = script_trunk("abcdefghijklmnopa", max_positions=64)
    ids = byte_tokenizer()("abcde", add_special_tokens=False).input_ids
    assert reasons_against(knows, [ids], [list(range(20))]) == []
