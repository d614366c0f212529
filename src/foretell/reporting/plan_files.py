"""Plan files: what ``foretell plan`` wrote with --json, read back."""

from __future__ import annotations

from foretell.reporting.bench_files import read_where
from foretell.reporting.node import MOST, Node, clean
from foretell.reporting.plan_results import Beside, PlanFile, Planned, PlannedDepth
from foretell.reporting.plan_words import no_row_fits
from foretell.reporting.runs import MAX_DEPTHS
from foretell.reporting.scaled import BYTES, COUNTS, FLOPS, Units, scaled

SOURCES = ("step_costs", "hardware")
"""Where costs of a prediction beside a bench file come from: that file itself, or the machine that was planned for."""
_LARGEST = MOST**2
"""Bytes and FLOPs of thousands of rows with millions of tokens are computed, not measured, and larger than ``MOST``."""


def read_plan(node: Node, name: str) -> PlanFile:
    """A plan, predictions beside a bench file, or both."""
    against = node.node("against")
    return PlanFile(
        name=name,
        planned=_planned(node) if node.node("plan").values else None,
        bench=against.text("file"),
        beside={source: rows for source in SOURCES if (rows := _beside(against, source))},
        where=read_where(node.node("machine")),
    )


def _planned(node: Node) -> Planned:
    model, machine, plan, published = (node.node(part) for part in ("model", "hardware", "plan", "published"))
    devices, name = machine.count("devices"), machine.text("name") or "a machine without a name"
    shown = f"{devices} x {name}" if devices is not None and devices > 1 else name
    return Planned(
        model=model.text("name") or "a model without a name",
        machine=shown,
        batch=plan.count("batch"),
        facts=_facts(node, shown),
        seconds_are=node.text("seconds_are"),
        depths=[depth for part in plan.nodes("depths")[: MAX_DEPTHS + 1] if (depth := _depth(part)) is not None],
        best_depth=plan.count("best_depth"),
        break_even_batch=plan.count("break_even_batch"),
        searched_batch=plan.count("searched_batch"),
        max_batch=plan.node("memory").count("max_batch"),
        context=plan.count("context"),
        weights_fit=_weights_fit(plan.node("memory")),
        published=_speedups(published.node("speedups")),
        published_source=published.text("source"),
    )


def _facts(node: Node, machine: str) -> dict[str, str]:
    """What the prediction stands on, row by row; without what the file does not say."""
    model, sheet, plan, given = (node.node(part) for part in ("model", "hardware", "plan", "acceptance"))
    heads, memory = model.node("heads"), plan.node("memory")
    conditional = " ".join(f"{value:.3g}" for value in given.shares("conditional") if value is not None)
    context, rows = plan.count("context"), memory.count("max_batch")
    efficiency, overhead = sheet.number("efficiency"), sheet.number("layer_overhead_s")
    none = f"none: {no_row_fits(_weights_fit(memory), context)}"
    facts = {
        "model": model.text("name"),
        "machine": machine,
        "machine's figures from": sheet.text("source"),
        "type of weights": sheet.text("dtype"),
        "share of its peaks": None if efficiency in (None, 1) else f"{efficiency:g}",
        "microseconds a layer beside kernels": f"{overhead * 1e6:g}" if overhead else None,
        "batch size": _count(plan.count("batch")),
        "context, tokens": None if context is None else f"{context:,}",
        "parameters of the trunk": _scaled(model.number("parameters")),
        "parameters of a module of heads": _scaled(heads.number("parameters")),
        "kind of heads": heads.text("kind"),
        "heads' sizes from": heads.text("origin"),
        "memory of the trunk": _scaled(memory.number("trunk"), BYTES),
        "memory of the heads": _scaled(memory.number("heads"), BYTES),
        "memory of the cache": _scaled(memory.number("cache", at_most=_LARGEST), BYTES),
        "memory of the machine": _scaled(memory.number("device"), BYTES),
        "rows that fit": f"{rows:,}" if rows else none if rows == 0 else None,
        "peak arithmetic a second": _scaled(_peak(sheet), FLOPS),
        "acceptance": (f"{conditional} at every depth" if given.flag("repeats") else conditional) or None,
        "acceptance from": given.text("origin"),
        "seconds are": node.text("seconds_are"),
    }
    return {words: value for words, value in facts.items() if value is not None}


def _weights_fit(memory: Node) -> bool:
    """False too where the file does not say."""
    trunk, heads, device = memory.number("trunk"), memory.number("heads"), memory.number("device")
    return trunk is not None and device is not None and trunk + (heads or 0.0) <= device


def _peak(sheet: Node) -> float | None:
    """FLOP/s of one device in the type that is computed in: balance, in FLOP a byte, times bytes a second."""
    balance, bandwidth, devices = sheet.number("balance"), sheet.number("bandwidth"), sheet.number("devices")
    return None if balance is None or bandwidth is None or devices is None else balance * bandwidth * devices


def _depth(part: Node) -> PlannedDepth | None:
    depth = part.count("depth")
    if depth is None:
        part.problems.append(f"{part.place}: without depth; left out")
        return None
    even = part.number("break_even_acceptance", at_most=1.0)
    num_nodes = part.count("num_nodes")
    return PlannedDepth(
        depth=depth,
        num_nodes=depth if num_nodes is None else num_nodes,
        num_bytes=part.number("num_bytes", at_most=_LARGEST),
        flops=part.number("flops", at_most=_LARGEST),
        intensity=part.number("intensity"),
        idle_share=part.number("idle_share", at_least=-MOST, at_most=1.0),
        num_awake_experts=part.number("num_awake_experts"),
        pass_s=part.number("pass_s"),
        draft_s=part.number("draft_s"),
        tokens_per_pass=part.number("tokens_per_pass"),
        tokens_per_s=part.number("tokens_per_s"),
        speedup=part.number("speedup"),
        simple_speedup=part.number("simple_speedup"),
        break_even=even,
        never_pays=depth > 0 and part.values.get("break_even_acceptance", 0) is None,
    )


def _beside(against: Node, source: str) -> list[Beside]:
    found = []
    for part in against.nodes(source):
        batch, depth = part.count("batch"), part.count("depth")
        if batch is None or depth is None:
            part.problems.append(f"{part.place}: without batch or depth; left out")
            continue
        found.append(
            Beside(
                batch=batch,
                depth=depth,
                num_nodes=part.count("num_nodes") or 0,
                is_tree=bool(part.flag("is_tree")),
                tokens_per_pass=part.number("tokens_per_pass"),
                predicted_tokens_per_s=part.number("predicted_tokens_per_s"),
                measured_tokens_per_s=part.number("measured_tokens_per_s"),
                error=part.number("error", at_least=-1.0),
                predicted_speedup=part.number("predicted_speedup"),
                measured_speedup=part.number("measured_speedup"),
            )
        )
    return found


def _speedups(node: Node) -> dict[str, float]:
    found = {clean(batch): node.number(batch) for batch in node.values}
    return {batch: value for batch, value in found.items() if value is not None}


def _count(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _scaled(value: float | None, units: Units = COUNTS) -> str | None:
    return None if value is None else scaled(value, units)
