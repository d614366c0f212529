"""What a bench report means, in sentences: best depth, policy, trees, c(n), whether texts were equal, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretell.analysis.summary import ALL, RunSummary, best_run
from foretell.cli.bench_stop import unfinished
from foretell.cli.bench_table import number, spread
from foretell.cli.output import counted

if TYPE_CHECKING:
    from foretell.analysis.bench_report import BenchReport
    from foretell.analysis.step_costs import StepCosts

_SLOWER = 0.95
"""A policy below this share of depth 0, or of the best fixed depth, is named."""
_NUM_COSTS = 6


def conclusions(report: BenchReport, where: dict[str, Any], repeats: int, costs: StepCosts | None = None) -> list[str]:
    """One line each."""
    drafting = [r for r in report.runs if r.domain == ALL and r.system == "foretell" and r.depth]
    lines = [*_best(report), *_policy(report), *_trees(report)]
    if drafting:
        lines.append(
            "Speed-up: the median of ratios to depth 0 on the same "
            f"{'prompt' if report.batch == 1 else 'group'} in the same repeat; in brackets the 10th and 90th "
            "percentile."
        )
    if report.batch > 1:
        lines.append(
            "Time shares: drafting / verifying / rest of steps that only decode / steps that read prompts too."
        )
        lines += [] if costs is None else _pass_costs(costs, report.batch)
    elif drafting:
        lines.append(
            "Predicted = mean acceptance length / round cost (a step's time over depth 0's): the limit if every "
            "step drafts."
        )
    if drafting:
        lines.append(_equality(report, drafting))
    for system, num_unlike in report.num_unlike.items():
        num_prompts = next(run.num_prompts for run in report.runs if run.system == system)
        lines.append(
            f"Text of {system} equal to depth 0: {num_prompts - num_unlike} of {num_prompts} "
            "(other kernels, so near ties may fall otherwise)."
        )
    lines += [*report.notes, *unfinished(report)]
    if load_note := where.get("load", {}).get("note"):
        lines.append(f"NOT QUIET: {load_note}.")
    return [*lines, _machine(report, where, repeats, drafting)]


def _best(report: BenchReport) -> list[str]:
    """The best of all settings, and beside a tree or the policy the best chain."""
    drafting = [r for r in report.runs if r.domain == ALL and r.system == "foretell" and r.depth]
    measured = [run for run in drafting if run.speedup is not None]
    if not measured:
        return ["No speed-up was measured: texts of one token take no step; give other prompts."] if drafting else []
    best, chain = max(measured, key=_speedup), best_run(report.runs)
    ratio = spread(best.speedup, 2, "x")
    if _speedup(best) <= 1:
        return [f"Best depth: 0. Drafting does not pay here: depth {best.setting.label} runs at {ratio} of depth 0."]
    beside = "" if best.setting == chain.setting else f"; best chain: depth {chain.depth}"
    if beside and chain.depth:
        beside += f", {spread(chain.speedup, 2, 'x')}"
    return [f"Best depth: {best.setting.label}, {ratio} of depth 0{beside}."]


def _speedup(run: RunSummary) -> float:
    return 0.0 if run.speedup is None else run.speedup.median


def _policy(report: BenchReport) -> list[str]:
    """Depth "auto" against depth 0 and against the best fixed one; domains where it loses by name."""
    budgets = dict.fromkeys(run.num_nodes for run in report.runs if run.depth == "auto")
    return [line for num_nodes in budgets for line in _policy_of(report, num_nodes)]


def _policy_of(report: BenchReport, num_nodes: int) -> list[str]:
    policy = [run for run in report.runs if run.depth == "auto" and run.num_nodes == num_nodes]
    name, best = f"Depth {policy[0].setting.label}", best_run(report.runs, num_nodes=num_nodes).setting.label
    line = (
        f"{name}: {spread(policy[0].speedup, 2, 'x')} of depth 0, "
        f"{spread(policy[0].speedup_over_best_fixed, 2, 'x')} of the best fixed depth ({best})"
    )
    if report.cold_start is not None and not num_nodes:
        line += (
            f"; cold start ({report.cold_start.name}; not counted): "
            f"{number(report.cold_start.speedup, 2, 'x') or 'n/a'} of depth 0"
        )
    lines = [f"{line}."]
    for what, field in (("depth 0", "speedup"), ("the best fixed depth", "speedup_over_best_fixed")):
        slow = [run for run in policy if (s := getattr(run, field)) is not None and s.median < _SLOWER]
        if slow:
            where = ", ".join(f"{run.domain} ({getattr(run, field).median:.2f}x)" for run in slow)
            lines.append(f"{name} is more than 5 % slower than {what} on: {where}.")
    return lines


def _trees(report: BenchReport) -> list[str]:
    return [
        f"Tree of {run.num_nodes} nodes, depth {run.depth}: {spread(run.speedup, 2, 'x')} of depth 0, "
        f"{spread(run.speedup_over_chain, 2, 'x')} of the chain that drafts as many, or as many as it can."
        for run in report.runs
        if run.domain == ALL and run.num_nodes and run.depth != "auto"
    ]


def _pass_costs(costs: StepCosts, batch: int) -> list[str]:
    """What a pass over more nodes costs while the batch is full: the sizes that came most often."""
    found = {nodes: times for (of, rows, nodes), times in costs.passes.items() if of == rows == batch}
    if not (plain := costs.seconds(found.pop(batch, []))):
        return []
    common = sorted(sorted(found, key=lambda nodes: -len(found[nodes]))[:_NUM_COSTS])
    parts = [f"{nodes} nodes {(costs.seconds(found[nodes]) or 0.0) / plain:.2f}x" for nodes in common]
    return [f"A pass over {batch} rows and no draft takes {1000 * plain:.1f} ms; over {', '.join(parts)}."] * bool(
        parts
    )


def _machine(report: BenchReport, where: dict[str, Any], repeats: int, drafting: list[RunSummary]) -> str:
    prefill = "prefill left out" if report.batch == 1 else "prompts included"
    return (
        f"{where['cpu']}, {counted(where['cores'], 'core')}, {counted(where['threads'], 'thread')}, {where['dtype']}, "
        f"torch {where['torch']}; {counted(repeats, 'repeat')}, batch {report.batch}, greedy, {prefill}"
        + (f", drafter {drafting[0].drafter}." if drafting else ".")
    )


def _equality(report: BenchReport, drafting: list[RunSummary]) -> str:
    num_texts = sum(run.num_prompts for run in drafting)
    num_bugs = sum(d.verdict == "BUG" for d in report.differences)
    line = f"Text equal to depth 0: {num_texts - len(report.differences)} of {num_texts}"
    if num_near := len(report.differences) - num_bugs:
        line += f"; {num_near} part at a near tie of the two likeliest tokens"
    return line + (f"; {num_bugs} part for no such reason, WHICH IS A BUG: run foretell verify." if num_bugs else ".")
