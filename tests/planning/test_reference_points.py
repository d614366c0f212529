"""The numbers of the mission that a planner must reproduce."""

from __future__ import annotations

import pytest

from foretell.planning.acceptance import Acceptance, simple_speedup
from foretell.planning.hardware import HARDWARE
from foretell.planning.plan import make_plan
from foretell.planning.roofline import Machine, Roofline
from tests.planning.models import preset


def test_an_h100_needs_295_flops_a_byte() -> None:
    assert round(HARDWARE["h100"].balance("bfloat16")) == 295


def test_70b_at_batch_1_has_one_to_two_flops_a_byte_and_idles() -> None:
    roofline = Roofline(preset("llama-3-70b"), Machine(HARDWARE["h100"]), context=1024)
    plain = make_plan(roofline, roofline, 1, 1).depths[0]
    assert 1 <= plain.intensity <= 2
    assert plain.idle_share > 0.99


def test_latency_is_weights_and_cache_over_bandwidth() -> None:
    """At batch 1: (weights + KV) / bandwidth + launch overhead, the embedding's other rows left out."""
    model, machine = preset("llama-3-70b"), Machine(HARDWARE["h100"], layer_overhead_s=5e-6)
    read = 2 * (model.parameters - model.vocab_size * model.hidden_size) + 327_680 * 1024
    expected = read / 3.35e12 + 80 * 5e-6
    assert Roofline(model, machine, 1024).pass_s(1, 1) == pytest.approx(expected, rel=1e-3)


def test_three_depths_of_deepseek_v3() -> None:
    acceptance = Acceptance.parse("0.785", unconditional=False)
    tokens = acceptance.tokens_per_pass(3)
    assert tokens == pytest.approx(2.89, abs=0.01)
    assert simple_speedup(tokens, 0.05, 3) == pytest.approx(2.51, abs=0.005)
    roofline = Roofline(preset("deepseek-v3"), Machine(HARDWARE["h200"], "float8", 8), 1024)
    plan = make_plan(roofline, roofline, 1, 3, acceptance, draft_cost=0.05)
    assert plan.depths[3].simple_speedup == pytest.approx(2.51, abs=0.005)


def test_one_module_of_deepseek_v3() -> None:
    """12 to 14 B with the copies of embedding and output matrix that its checkpoint stores, 4 to 5 % of the FLOPs."""
    model = preset("deepseek-v3")
    copies = 2 * model.vocab_size * model.hidden_size
    assert 12e9 < model.heads.parameters + copies < 14e9
    assert 0.04 < model.heads.stack.active / model.stack.active < 0.05
    projection = 14336 * 7168
    assert model.heads.stack.dense > projection and model.heads.parameters > 11e9
