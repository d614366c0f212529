"""A plan on one screen: what was assumed, one line a depth, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.cli.output import counted

if TYPE_CHECKING:
    from rich.table import Table

    from foretell.planning.acceptance import Acceptance
    from foretell.planning.against import Compared
    from foretell.planning.measured import MeasuredMachine
    from foretell.planning.model import PlanModel
    from foretell.planning.plan import DepthPlan, Plan
    from foretell.planning.published import Published
    from foretell.planning.roofline import Machine

_COUNTS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
_FLOPS = ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"), (1.0, "FLOP"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def scaled(number: float, units: Sequence[tuple[float, str]] = _COUNTS) -> str:
    """``671 B``: a number to three digits with its unit."""
    for size, unit in units:
        if number >= size * 0.9995:
            return f"{number / size:.3g} {unit}" if number < size * 99.95 else f"{number / size:.0f} {unit}"
    return f"{number:.3g}" if units is _COUNTS else f"{number:.3g} {units[-1][1]}"


def head_lines(model: PlanModel, machine: Machine, plan: Plan, acceptance: Acceptance | None, source: str) -> list[str]:
    """What is planned, and from which sizes."""
    stack, heads, memory = model.stack, model.heads, plan.memory
    experts = stack.experts
    routed = f" ({experts.per_token} of {experts.num} experts a token)" if stack.routed else ""
    deepest = plan.depths[-1]
    share = heads.stack.active / stack.active
    vocabulary = f", drafting from {heads.draft_vocab:,} tokens" if heads.draft_vocab else ""
    device = f"{machine.devices} x {machine.hardware.name}" if machine.devices > 1 else machine.hardware.name
    free = f"up to {counted(memory.max_batch, 'row')} fit" if memory.max_batch else "the weights do not fit"
    lines = [
        f"{model.name}, {machine.dtype}, on {device}: batch {plan.batch}, context {plan.context:,}",
        "",
        f"trunk       {scaled(model.parameters)} parameters, {scaled(stack.active)} active{routed}; "
        f"{scaled(memory.trunk, _BYTES)}",
        f"heads       {scaled(heads.parameters)} parameters a module{vocabulary}, {heads.origin}; "
        f"{counted(deepest.head_parameters // heads.parameters if heads.parameters else 0, 'module')}, "
        f"{scaled(memory.heads, _BYTES)}; a depth costs {share:.1%} of the trunk's FLOPs",
        f"cache       {scaled(memory.cache_per_token, _BYTES)} a token with the heads', "
        f"{scaled(memory.cache, _BYTES)} in all",
        f"machine     {scaled(machine.hardware.flops_per_s(machine.dtype) * machine.devices, _FLOPS)}/s, "
        f"{scaled(machine.hardware.bandwidth * machine.devices, _BYTES)}/s: balance "
        f"{machine.hardware.balance(machine.dtype):.0f} FLOP/byte; {scaled(memory.device, _BYTES)}, {free} ({source})",
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
    table = _table([*names, "break-even"])
    for depth in plan.depths:
        table.add_row(*_depth_cells(depth, is_tree, has_experts, has_gain))
    return table


def closing_lines(
    plan: Plan, machine: Machine, measured: MeasuredMachine | None, published: Published | None
) -> list[str]:
    """What follows, and what was left out."""
    lines = []
    if plan.best_depth is None:
        lines.append("No acceptance given: speed-ups are left out. Break-even is the share that each depth must reach.")
    else:
        best = max(plan.depths, key=lambda depth: depth.tokens_per_s or 0.0)
        gain = (
            f", {best.speedup:.2f}x plain decoding" if best.speedup and best.depth else ": drafting does not pay here"
        )
        lines.append(f"Best depth: {plan.best_depth}{gain}.")
        lines.append(_until(plan))
    if any(depth.num_awake_experts is not None for depth in plan.depths):
        lines.append("Experts: expected distinct ones a layer and pass, were routing uniform and tokens independent.")
    if measured is not None:
        lines.append(
            f"Seconds are put together from kernels and steps measured for {measured.model}, "
            f"context {measured.context:,}, {counted(measured.num_threads, 'thread')}."
        )
    elif machine.is_bound:
        lines.append(
            "Seconds are bounds from the data sheet: no launch, no communication, no kernel below its peak. "
            "--efficiency and --layer-overhead-us add what you know of yours."
        )
    else:
        lines.append(
            f"Seconds: data sheet x {machine.efficiency:g}, and {machine.layer_overhead_s * 1e6:g} us a layer; "
            "devices' talk counts only as far as that holds it."
        )
    if published:
        shares = ", ".join(f"{speedup:g}x at batch {batch}" for batch, speedup in published.speedups.items())
        lines.append(f"Published: {shares} ({published.source}; it does not say {published.unknown}).")
    return lines


def _until(plan: Plan) -> str:
    """Where drafting stops paying; of batch sizes that fit, unless the weights alone do not."""
    fitting, searched = plan.memory.max_batch, plan.searched_batch
    if plan.break_even_batch:
        line = f"Drafting stops paying at batch {plan.break_even_batch:,}."
    elif searched == fitting:
        return f"Drafting pays at every batch size that fits at context {plan.context:,}: up to {fitting:,}."
    else:
        line = f"Drafting pays at every batch size up to {searched:,}."
    return line if fitting else f"{line} (The weights do not fit; this is as if they did.)"


def against_table(rows: Sequence[Compared]) -> Table:
    """Prediction beside measurement."""
    names = ("batch", "depth", "tokens/pass", "predicted tok/s", "measured tok/s", "error", "predicted", "measured")
    table = _table(names)
    for row in rows:
        depth = f"{row.depth}, {row.num_nodes} nodes" if row.is_tree else str(row.depth)
        rates = (f"{row.predicted_tokens_per_s:.1f}", f"{row.measured_tokens_per_s:.1f}", f"{row.error:+.1%}")
        gains = (f"{row.predicted_speedup:.2f}x", f"{row.measured_speedup:.2f}x")
        table.add_row(str(row.batch), depth, f"{row.tokens_per_pass:.2f}", *rates, *gains)
    return table


def _depth_cells(depth: DepthPlan, is_tree: bool, has_experts: bool, has_gain: bool) -> list[str]:
    cells = [str(depth.depth), *([str(depth.num_nodes)] if is_tree else [])]
    cells += [scaled(depth.num_bytes, _BYTES), scaled(depth.flops, _FLOPS), f"{depth.intensity:.2f}"]
    cells.append(f"{depth.idle_share:.1%}")
    cells += [f"{depth.num_awake_experts:.1f}"] if has_experts and depth.num_awake_experts is not None else []
    cells += [scaled(depth.pass_s, _SECONDS), scaled(depth.draft_s, _SECONDS) if depth.depth else "-"]
    if has_gain:
        cells += [f"{depth.tokens_per_pass:.2f}", f"{depth.tokens_per_s:,.1f}", f"{depth.speedup:.2f}x"]
        cells.append("-" if depth.simple_speedup is None else f"{depth.simple_speedup:.2f}x")
    even = depth.break_even_acceptance
    return [*cells, "-" if not depth.depth else "never" if even is None else f"{even:.3f}"]


def _table(names: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, justify="right")
    return table
