"""A plan on one screen: what was assumed, one line a depth, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.cli.output import counted
from foretell.reporting.plan_words import BOUNDS, EXPERTS, follows, no_row_fits, too_much
from foretell.reporting.scaled import BYTES, FLOPS, SECONDS, scaled

if TYPE_CHECKING:
    from rich.table import Table

    from foretell.planning.acceptance import Acceptance
    from foretell.planning.measured import MeasuredMachine
    from foretell.planning.model import PlanModel
    from foretell.planning.plan import DepthPlan, Plan
    from foretell.planning.published import Published
    from foretell.planning.roofline import Machine


def head_lines(model: PlanModel, machine: Machine, plan: Plan, acceptance: Acceptance | None, source: str) -> list[str]:
    """What is planned, and from which sizes."""
    stack, heads, memory = model.stack, model.heads, plan.memory
    experts = stack.experts
    routed = f" ({experts.per_token} of {experts.num} experts a token)" if stack.routed else ""
    deepest = plan.depths[-1]
    share = heads.stack.active / stack.active
    vocabulary = f", drafting from {heads.draft_vocab:,} tokens" if heads.draft_vocab else ""
    kind = "" if heads.reads_tokens else f"{heads.kind} heads, "
    device = f"{machine.devices} x {machine.hardware.name}" if machine.devices > 1 else machine.hardware.name
    none = no_row_fits(memory.weights_fit, plan.context)
    free = f"up to {counted(memory.max_batch, 'row')} fit" if memory.max_batch else none
    lines = [
        f"{model.name}, {machine.dtype}, on {device}: batch {plan.batch}, context {plan.context:,}",
        "",
        f"trunk       {scaled(model.parameters)} parameters, {scaled(stack.active)} active{routed}; "
        f"{scaled(memory.trunk, BYTES)}",
        f"heads       {scaled(heads.parameters)} parameters a module{vocabulary}, {kind}{heads.origin}; "
        f"{counted(deepest.head_parameters // heads.parameters if heads.parameters else 0, 'module')}, "
        f"{scaled(memory.heads, BYTES)}; a depth costs {share:.1%} of the trunk's FLOPs",
        f"cache       {scaled(memory.cache_per_token, BYTES)} a token with the heads', "
        f"{scaled(memory.cache, BYTES)} in all",
        f"machine     {scaled(machine.hardware.flops_per_s(machine.dtype) * machine.devices, FLOPS)}/s, "
        f"{scaled(machine.hardware.bandwidth * machine.devices, BYTES)}/s: balance "
        f"{machine.hardware.balance(machine.dtype):.0f} FLOP/byte; {scaled(memory.device, BYTES)}, {free} ({source})",
    ]
    if acceptance:
        shown = ", ".join(f"{alpha:.3g}" for alpha in acceptance.conditional)
        every = " at every depth" if acceptance.repeats else ""
        what = (
            "any candidate of a level" if acceptance.num_nodes or deepest.num_nodes != deepest.depth else "conditional"
        )
        lines.append(f"acceptance  {shown}{every} ({what}; {acceptance.origin})")
    return lines


def depth_table(plan: Plan) -> Table:
    """One line a depth. Columns that nothing is known for are left out."""
    has_experts = any(depth.num_awake_experts is not None for depth in plan.depths)
    has_gain = any(depth.speedup is not None for depth in plan.depths)
    is_tree = any(depth.num_nodes != depth.depth for depth in plan.depths)
    names = ["depth", *(["nodes"] if is_tree else []), "bytes", "FLOPs", "FLOP/byte", "idle"]
    names += [*(["experts"] if has_experts else []), "pass", "draft"]
    names += ["tokens/pass", "tokens/s", "speed-up", "simple"] if has_gain else []
    table = right_table([*names, "break-even"])
    for depth in plan.depths:
        table.add_row(*_depth_cells(depth, is_tree, has_experts, has_gain))
    return table


def closing_lines(
    plan: Plan, machine: Machine, measured: MeasuredMachine | None, published: Published | None
) -> list[str]:
    """What follows, and what was left out."""
    lines = []
    room = too_much(plan.memory.max_batch, plan.memory.weights_fit, plan.batch, plan.context)
    if plan.best_depth is None:
        text = "No acceptance given: speed-ups are left out. Break-even is the share that each depth must reach."
        lines.append(" ".join([text, *room]))
    else:
        fastest = max(plan.depths, key=lambda depth: depth.tokens_per_s or 0.0)
        known = (plan.break_even_batch, plan.searched_batch, plan.memory.max_batch, plan.context)
        text = " ".join([*follows(plan.best_depth, fastest.speedup, *known), *room])
        lines.append(text[0].upper() + text[1:])
    if any(depth.num_awake_experts is not None for depth in plan.depths):
        lines.append(EXPERTS)
    if measured is not None:
        lines.append(
            f"Seconds are put together from kernels and steps measured for {measured.model}, "
            f"context {measured.context:,}, {counted(measured.num_threads, 'thread')}."
        )
    elif machine.is_bound:
        lines.append(f"{BOUNDS} --efficiency and --layer-overhead-us add what you know of yours.")
    else:
        lines.append(
            f"Seconds: data sheet x {machine.efficiency:g}, and {machine.layer_overhead_s * 1e6:g} us a layer; "
            "devices' talk counts only as far as that holds it."
        )
    if published:
        shares = ", ".join(f"{speedup:g}x at batch {batch}" for batch, speedup in published.speedups.items())
        lines.append(f"Published: {shares} ({published.source}; it does not say {published.unknown}).")
        lines.append(
            "Where published figures are better: real steps spend time on launches and exchange that drafts do not add "
            "to (--layer-overhead-us 100 shows what that changes)."
        )
    return lines


def _depth_cells(depth: DepthPlan, is_tree: bool, has_experts: bool, has_gain: bool) -> list[str]:
    cells = [str(depth.depth), *([str(depth.num_nodes)] if is_tree else [])]
    cells += [scaled(depth.num_bytes, BYTES), scaled(depth.flops, FLOPS), f"{depth.intensity:.2f}"]
    cells.append(f"{depth.idle_share:.1%}")
    cells += [f"{depth.num_awake_experts:.1f}"] if has_experts and depth.num_awake_experts is not None else []
    cells += [scaled(depth.pass_s, SECONDS), scaled(depth.draft_s, SECONDS) if depth.depth else "-"]
    if has_gain:
        cells += [f"{depth.tokens_per_pass:.2f}", f"{depth.tokens_per_s:,.1f}", f"{depth.speedup:.2f}x"]
        cells.append("-" if depth.simple_speedup is None else f"{depth.simple_speedup:.2f}x")
    even = depth.break_even_acceptance
    return [*cells, "-" if not depth.depth else "never" if even is None else f"{even:.3f}"]


def right_table(names: Sequence[str]) -> Table:
    """A table without lines, every column to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, justify="right")
    return table
