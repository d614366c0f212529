"""Plan: what every depth costs and gains at one batch size, which is best, and where drafting stops paying."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from foretell.planning.acceptance import Acceptance, simple_speedup
from foretell.planning.break_even import break_even_acceptance, break_even_batch
from foretell.planning.costs import Costs, step_parts
from foretell.planning.hardware import WEIGHT_BYTES
from foretell.planning.plan_memory import Memory, memory_of
from foretell.planning.roofline import Roofline, Work

MAX_BATCH = 4096
"""As far as a break-even batch is looked for, unless less fits or the costs are known for less."""


@dataclass(frozen=True)
class DepthPlan:
    """One depth. ``num_nodes``: drafted tokens a row; ``num_bytes`` and ``flops``: of a step, drafting included, and
    ``intensity`` their ratio; ``idle_share``: of the arithmetic that the peak allows in ``step_s``.
    ``num_awake_experts``: expected distinct routed experts of a layer, None without any. ``tokens_per_s``: of all rows.

    What needs an acceptance is None without one: ``tokens_per_pass`` E[K]; ``speedup`` over depth 0 of this plan;
    ``simple_speedup`` E[K] / (1 + c D). ``break_even_acceptance``: equal alpha at every depth at which the step gains
    nothing; None where it cannot gain, and at depth 0. ``head_parameters``: in memory; ``flop_overhead``: of drafting
    one token a level over the trunk's FLOPs a token, attention left out.
    """

    depth: int
    num_nodes: int
    num_bytes: float
    flops: float
    intensity: float
    idle_share: float
    num_awake_experts: float | None
    pass_s: float
    draft_s: float
    step_s: float
    tokens_per_pass: float | None
    tokens_per_s: float | None
    speedup: float | None
    simple_speedup: float | None
    break_even_acceptance: float | None
    head_parameters: int
    head_bytes: float
    flop_overhead: float


@dataclass(frozen=True)
class Plan:
    """``best_depth``: with the most tokens/s, None without an acceptance. ``break_even_batch``: the smallest at which
    that is 0, looked for up to ``searched_batch``; None where there is none, or no acceptance.

    ``searched_batch``: no more rows than fit; where none does, as many as if there were room.
    """

    batch: int
    context: int
    depths: list[DepthPlan]
    memory: Memory
    best_depth: int | None
    break_even_batch: int | None
    searched_batch: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def make_plan(
    roofline: Roofline,
    costs: Costs,
    batch: int,
    max_depth: int,
    acceptance: Acceptance | None = None,
    num_nodes: int = 0,
    draft_cost: float | None = None,
    max_batch: int = MAX_BATCH,
) -> Plan:
    """Depths 0 to ``max_depth``; with ``num_nodes`` depth 0 and a tree of so many nodes, ``max_depth`` deep. Its nodes
    are taken to be spread evenly over its levels, and ``acceptance`` as that of any of a level's candidates.

    ``draft_cost``: c of the simple formula; None = the FLOPs of a depth over the trunk's.
    """
    shapes = [(0, 0), (max_depth, num_nodes)] if num_nodes else [(d, d) for d in range(max_depth + 1)]
    depths = [_depth_plan(roofline, costs, batch, d, n, acceptance, draft_cost) for d, n in shapes]
    best = max(depths, key=lambda plan: plan.tokens_per_s or 0.0).depth if acceptance else None
    memory = memory_of(roofline, batch, max_depth)
    searched = min(max_batch, memory.max_batch) if memory.max_batch else max_batch
    found = break_even_batch(costs, shapes, acceptance, searched) if acceptance else None
    return Plan(batch, roofline.context, depths, memory, best, found, searched)


def _depth_plan(
    roofline: Roofline,
    costs: Costs,
    batch: int,
    depth: int,
    num_nodes: int,
    acceptance: Acceptance | None,
    draft_cost: float | None,
) -> DepthPlan:
    model = roofline.model
    expected = acceptance.tokens_per_pass(depth) if acceptance else None
    num_true = expected or 1.0
    pass_s, draft_s = step_parts(costs, batch, depth, num_nodes, num_true)
    plain_s = costs.pass_s(batch, 1)
    works: list[Work] = roofline.pass_works(batch, 1 + num_nodes)
    if depth:
        works += [w for level in roofline.draft_levels(batch, depth, num_true, num_nodes / depth) for w in level]
    num_bytes, flops = sum(work.num_bytes for work in works), sum(work.flops for work in works)
    step_s = pass_s + draft_s
    share = model.heads.stack.active / model.stack.active
    cost = share if draft_cost is None else draft_cost
    is_tree = num_nodes != depth
    return DepthPlan(
        depth=depth,
        num_nodes=num_nodes,
        num_bytes=num_bytes,
        flops=flops,
        intensity=flops / num_bytes,
        idle_share=1 - flops / (step_s * roofline.machine.flops_per_s),
        num_awake_experts=model.stack.num_awake_experts(batch * (1 + num_nodes)) if model.stack.routed else None,
        pass_s=pass_s,
        draft_s=draft_s,
        step_s=step_s,
        tokens_per_pass=expected,
        tokens_per_s=batch * expected / step_s if expected else None,
        speedup=expected * plain_s / step_s if expected else None,
        simple_speedup=simple_speedup(expected, cost, depth) if expected and not is_tree else None,
        break_even_acceptance=break_even_acceptance(costs, batch, depth, num_nodes) if depth else None,
        head_parameters=model.heads.parameters * model.heads.num_modules(depth),
        head_bytes=model.heads.parameters * model.heads.num_modules(depth) * WEIGHT_BYTES[roofline.machine.dtype],
        flop_overhead=share * depth,
    )
