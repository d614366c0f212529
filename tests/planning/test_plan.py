"""A plan: speed-ups, break-evens and memory on costs that are known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from foretell.planning.acceptance import Acceptance
from foretell.planning.hardware import HARDWARE
from foretell.planning.plan import make_plan
from foretell.planning.published import published_for
from foretell.planning.roofline import Machine, Roofline
from tests.planning.models import preset
from tests.planning.test_roofline import MODEL, SLOW

ROOFLINE = Roofline(MODEL, Machine(SLOW), context=50)
ROOMY = Roofline(MODEL, Machine(replace(SLOW, num_bytes=1e9)), context=50)
"""Room for more rows than are ever tried."""


@dataclass
class Linear:
    """A pass costs 1 and ``per_token`` more for every token beyond the first, a drafted depth ``per_depth``."""

    per_token: float = 0.0
    per_depth: float = 0.05

    def pass_s(self, batch: int, nodes: float) -> float:
        return 1 + self.per_token * (batch * nodes - 1)

    def draft_s(self, batch: int, depth: int, num_true: float, width: float) -> float:
        return self.per_depth * depth


def test_where_a_pass_costs_the_same_at_every_width_the_simple_formula_holds() -> None:
    acceptance = Acceptance.parse("0.785", False)
    plan = make_plan(ROOFLINE, Linear(), 1, 3, acceptance, draft_cost=0.05)
    assert [depth.depth for depth in plan.depths] == [0, 1, 2, 3]
    for depth in plan.depths:
        assert depth.speedup == pytest.approx(depth.simple_speedup)
        assert depth.tokens_per_s == pytest.approx(depth.speedup)  # plain decoding makes 1 token/s
    assert plan.depths[3].speedup == pytest.approx(2.51, abs=0.005) and plan.best_depth == 3


def test_break_even_acceptance_is_where_the_speed_up_is_one() -> None:
    costs = Linear(per_token=0.1, per_depth=0.05)
    plan = make_plan(ROOFLINE, costs, 1, 3)
    assert plan.depths[0].break_even_acceptance is None and plan.best_depth is None
    assert plan.depths[1].break_even_acceptance == pytest.approx(0.15)
    for depth in plan.depths[1:]:
        at = str(depth.break_even_acceptance)
        again = make_plan(ROOFLINE, costs, 1, 3, Acceptance.parse(at, False)).depths[depth.depth]
        assert again.speedup == pytest.approx(1.0, abs=1e-6)
    assert make_plan(ROOFLINE, Linear(per_token=1.5), 1, 1).depths[1].break_even_acceptance is None


def test_break_even_batch_is_the_first_where_depth_0_is_best() -> None:
    acceptance = Acceptance.parse("0.5", False)
    # Depth 1 gains while 1.5 x (1 + 0.01 (b - 1)) > 1.05 + 0.01 (2b - 1), that is while b < 89.
    plan = make_plan(ROOMY, Linear(per_token=0.01 + 1e-9), 1, 1, acceptance)
    assert plan.break_even_batch == 89 and plan.searched_batch == 4096
    found = [make_plan(ROOMY, Linear(per_token=0.01 + 1e-9), 1, 1, acceptance, max_batch=most) for most in (88, 89)]
    assert [(one.break_even_batch, one.searched_batch) for one in found] == [(None, 88), (89, 89)]
    best = [
        make_plan(ROOFLINE, Linear(per_token=0.01 + 1e-9), b, 1, acceptance, max_batch=1).best_depth for b in (88, 89)
    ]
    assert best == [1, 0]
    assert make_plan(ROOMY, Linear(), 1, 1, acceptance, max_batch=50).break_even_batch is None
    assert make_plan(ROOFLINE, Linear(per_depth=9), 1, 1, acceptance).break_even_batch == 1


def test_only_batches_that_fit_are_searched() -> None:
    """58,000 bytes are free, a row takes 50 x 120: nine fit.

    Depth 1 gains while 1.5 x (1 + p (b - 1)) > 1.05 + p (2b - 1), that is while b < 0.9 / p - 1.
    """
    acceptance = Acceptance.parse("0.5", False)
    at_nine, at_ten = Linear(per_token=0.9 / 9.5), Linear(per_token=0.9 / 10.5)
    found = [make_plan(ROOFLINE, costs, 1, 1, acceptance) for costs in (at_nine, at_ten)]
    assert [(plan.break_even_batch, plan.searched_batch, plan.memory.max_batch) for plan in found] == [
        (9, 9, 9),
        (None, 9, 9),
    ]
    assert make_plan(ROOMY, at_ten, 1, 1, acceptance).break_even_batch == 10
    assert make_plan(ROOFLINE, at_nine, 1, 1, acceptance, max_batch=4).searched_batch == 4
    tight = Roofline(MODEL, Machine(replace(SLOW, num_bytes=1e3)), context=50)
    nothing_fits = make_plan(tight, at_ten, 1, 1, acceptance)
    assert (nothing_fits.memory.max_batch, nothing_fits.break_even_batch) == (0, 10)


def test_experts_of_all_rows_are_awake_and_flops_of_all_depths_counted() -> None:
    roofline = Roofline(preset("deepseek-v3"), Machine(HARDWARE["h200"], "float8", 8), 1024)
    plan = make_plan(roofline, Linear(), 4, 2)
    # 8 of 256 experts a token; 4 rows of 1, 2 and 3 tokens.
    assert [depth.num_awake_experts for depth in plan.depths] == pytest.approx(
        [256 * (1 - (1 - 8 / 256) ** num_tokens) for num_tokens in (4, 8, 12)]
    )
    share = roofline.model.heads.stack.active / roofline.model.stack.active
    assert [depth.flop_overhead for depth in plan.depths] == pytest.approx([0, share, 2 * share])


def test_a_tree_pays_for_its_nodes_and_gains_by_its_levels() -> None:
    acceptance = Acceptance.parse("0.8,0.5", False)
    plan = make_plan(ROOFLINE, Linear(per_token=0.1), 1, 2, acceptance, num_nodes=6)
    plain, tree = plan.depths
    assert (plain.num_nodes, tree.num_nodes, tree.depth) == (0, 6, 2)
    assert tree.step_s == pytest.approx(1.6 + 0.1) and tree.tokens_per_pass == pytest.approx(2.2)
    assert tree.simple_speedup is None


def test_idle_arithmetic_and_intensity_are_of_the_whole_step() -> None:
    depth = make_plan(ROOFLINE, ROOFLINE, 1, 1, Acceptance.parse("0.5", False)).depths[1]
    works = [*ROOFLINE.pass_works(1, 2), *ROOFLINE.draft_levels(1, 1, 1.5, 1)[0]]
    assert depth.flops == pytest.approx(sum(w.flops for w in works))
    assert depth.num_bytes == pytest.approx(sum(w.num_bytes for w in works))
    assert depth.intensity == pytest.approx(depth.flops / depth.num_bytes)
    assert depth.idle_share == pytest.approx(1 - depth.flops / (depth.step_s * 1e6))


def test_memory_of_heads_and_cache() -> None:
    distinct = replace(MODEL.heads, distinct=True)
    for heads, modules in ((MODEL.heads, 1), (distinct, 3)):
        memory = make_plan(Roofline(MODEL.with_heads(heads), Machine(SLOW), 50), Linear(), 4, 3).memory
        assert memory.trunk == 40_000 and memory.heads == modules * 2_000
        assert memory.cache_per_token == 2 * (40 + 20 * modules)
        assert memory.cache == 4 * 50 * memory.cache_per_token
        assert memory.max_batch == (100_000 - 40_000 - modules * 2_000) // (50 * memory.cache_per_token)
    assert (
        make_plan(Roofline(preset("llama-3-70b"), Machine(HARDWARE["h100"]), 50), Linear(), 1, 1).memory.max_batch == 0
    )


def test_states_are_no_part_of_what_a_token_adds() -> None:
    """Qwen3.5-0.8B: 6 of 24 layers and the head keep 2 x 2 x 256 numbers a token; the others a state a row."""
    roofline = Roofline(preset("qwen3.5-0.8b"), Machine(SLOW), context=50)
    memory = make_plan(roofline, Linear(), 3, 1).memory
    assert memory.cache_per_token == 2 * 7 * 2 * 2 * 256
    assert memory.cache > 3 * 50 * memory.cache_per_token + 2 * 3 * 18 * 16 * 128 * 128


def test_experts_make_drafting_dear_in_the_middle_and_cheap_at_both_ends() -> None:
    """DeepSeek-V3's bound: at batch 1 extra tokens wake other experts, at 128 nearly all are awake already."""
    roofline = Roofline(preset("deepseek-v3"), Machine(HARDWARE["h200"], "float8", 8), 1024)
    acceptance = Acceptance.parse("0.785", False)

    def gain(batch: int) -> float:
        return make_plan(roofline, roofline, batch, 3, acceptance, max_batch=1).depths[3].speedup or 0.0

    assert gain(1) < 1.2 < gain(32) < gain(128)
    dense = Roofline(preset("llama-3-70b"), Machine(HARDWARE["h200"], "float8", 8), 1024)
    assert (make_plan(dense, dense, 1, 3, acceptance, max_batch=1).depths[3].speedup or 0) > 2.5


def test_published_figures_stand_beside_their_own_case_only() -> None:
    found = published_for("deepseek-v3", "h200", 8)
    assert found is not None and found.speedups == {1: 1.8, 32: 1.5}
    assert published_for("deepseek-v3", "h200", 1) is None and published_for("glm-4.5", "h200", 8) is None
