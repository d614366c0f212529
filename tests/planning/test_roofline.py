"""Bytes, FLOPs and seconds against sums done by hand on a model of round numbers."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from foretell.errors import UsageError
from foretell.inspection.costs import Experts
from foretell.planning.hardware import HARDWARE, Hardware
from foretell.planning.layer_caches import LayerCache
from foretell.planning.model import HeadModel, PlanModel
from foretell.planning.roofline import Machine, Roofline
from foretell.planning.stack import Stack

CACHE = LayerCache("full_attention", 2, token_numbers=20, pair_flops=40)
HEADS = HeadModel(Stack(1_000, 0, 3_000), 1_000, LayerCache("full_attention", 1, token_numbers=20, pair_flops=40))
MODEL = PlanModel("m", 10, 300, 2, 20_000, Stack(8_000, 0, 3_000), (CACHE,), HEADS)
SLOW = Hardware("slow", {"bfloat16": 1e6, "float32": 1e6}, 1e4, 1e5, "")
"""Balance 100 FLOPs a byte."""


def works(roofline: Roofline, batch: int, nodes: int) -> dict[str, tuple[float, float]]:
    return {work.name: (work.num_bytes, work.flops) for work in roofline.pass_works(batch, nodes)}


def test_a_pass_by_hand() -> None:
    found = works(Roofline(MODEL, Machine(SLOW), context=50), batch=3, nodes=2)
    assert found["dense"] == (2 * (8_000 + 6 * 10), 2 * 8_000 * 6)
    assert found["output"] == (2 * 3_000, 2 * 3_000 * 6)
    # 3 rows x 2 layers x 20 numbers x (50 read + 2 written) x 2 bytes; 6 tokens x 2 layers x 40 x 50
    assert found["attention"] == (3 * 2 * 20 * 52 * 2, 6 * 2 * 40 * 50)
    assert found["experts"] == (0, 0)


def test_each_group_takes_the_longer_of_bytes_and_flops() -> None:
    roofline = Roofline(MODEL, Machine(SLOW, layer_overhead_s=0.5), context=50)
    # 200 tokens: weights are bound by arithmetic (200 FLOPs a byte), attention by memory (40 a byte at most).
    parts = {name: max(b / 1e4, f / 1e6) for name, (b, f) in works(roofline, 200, 1).items()}
    assert parts["dense"] == 2 * 8_000 * 200 / 1e6
    assert parts["attention"] == 200 * 2 * 20 * 51 * 2 / 1e4
    assert roofline.pass_s(200, 1) == pytest.approx(sum(parts.values()) + 2 * 0.5)


def test_every_drafted_level_takes_a_layers_overhead() -> None:
    free, paid = (Roofline(MODEL, Machine(SLOW, layer_overhead_s=s), context=50) for s in (0.0, 0.5))
    for depth in (1, 3):
        assert paid.draft_s(2, depth, 1.5, 1.0) == pytest.approx(free.draft_s(2, depth, 1.5, 1.0) + depth * 0.5)


def test_devices_and_efficiency() -> None:
    one = Roofline(MODEL, Machine(SLOW), 50).pass_s(1, 4)
    assert Roofline(MODEL, Machine(SLOW, devices=4, efficiency=0.5), 50).pass_s(1, 4) == pytest.approx(one / 2)


def test_drafting_reads_heads_and_output_again_at_every_depth() -> None:
    roofline = Roofline(MODEL, Machine(SLOW), context=50)
    first, second = roofline.draft_levels(batch=1, depth=2, num_true=3.0, width=1.0)
    assert sum(w.num_bytes for w in first) == 2 * (1_000 + 3 * 10) + 20 * 53 * 2 + 2 * 3_000
    assert [w.flops for w in second] == [2 * 1_000, 0, 40 * 50, 2 * 3_000]
    assert next(w.flops for w in first if w.name == "output") == 2 * 3_000  # only the newest token guesses
    assert roofline.draft_s(1, 2, 3.0, 1.0) > 2 * roofline.draft_s(1, 1, 1.0, 1.0) - 1e-9


def test_a_tree_projects_one_node_first_and_its_frontier_then() -> None:
    levels = Roofline(MODEL, Machine(SLOW), context=50).draft_levels(batch=2, depth=3, num_true=1.5, width=4.0)
    assert [next(w.flops for w in works if w.name == "output") for works in levels] == [
        2 * 3_000 * 2 * n for n in (1, 4, 4)
    ]
    assert [works[0].flops for works in levels] == [2 * 1_000 * 2 * n for n in (1.5, 4, 4)]


def test_distinct_modules_read_what_was_added_at_every_depth() -> None:
    distinct = Roofline(MODEL.with_heads(replace(HEADS, distinct=True)), Machine(SLOW), 50)
    _, second = distinct.draft_levels(1, 2, 3.0, 1.0)
    assert second[0].flops == 3 * 2 * 1_000
    assert HEADS.num_modules(3) == 1 and replace(HEADS, distinct=True).num_modules(3) == 3


def test_awake_experts_are_counted_as_all_draws_would() -> None:
    """2 of 4 experts a token, three tokens: the mean over all 6^3 choices."""
    stack = Stack(0, 400, 0, Experts(4, 2))
    pairs = list(itertools.combinations(range(4), 2))
    counts = [len({e for pair in draw for e in pair}) for draw in itertools.product(pairs, repeat=3)]
    assert stack.num_awake_experts(3) == pytest.approx(sum(counts) / len(counts))
    assert stack.awake(3) == pytest.approx(100 * sum(counts) / len(counts))
    assert stack.active == 200 and stack.routed_flops(3) == 2 * 3 * 200


def test_extra_tokens_wake_experts_but_cost_flops_of_few() -> None:
    model = PlanModel("e", 10, 300, 2, 20_000, Stack(0, 6_400, 0, Experts(64, 1)), (CACHE,), HEADS)
    one, four = (works(Roofline(model, Machine(SLOW), 1), 1, n)["experts"] for n in (1, 4))
    assert one == (pytest.approx(2 * 100), 2 * 100)
    assert 3.8 < four[0] / one[0] < 4 and four[1] == 4 * one[1]


def test_arithmetic_that_a_device_lacks_is_named() -> None:
    with pytest.raises(UsageError, match="no float8 arithmetic; give float32 or bfloat16"):
        HARDWARE["cpu"].balance("float8")
    assert HARDWARE["rtx4090"].flops_per_s("int4") == HARDWARE["rtx4090"].flops_per_s("bfloat16")
