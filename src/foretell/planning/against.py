"""Prediction beside measurement: every fixed depth of a bench file, from one source of costs and its own acceptance.

Taken from the file in any case: acceptance of the run itself, lengths and numbers of prompts and texts. The clock of
batches has prompts in it. What reading one takes is put together from measured steps where costs were measured and the
file has the prompts' lengths, and is otherwise that of the plain run of the same batch and domain. Not taken: tokens/s
and step times of the depths that are predicted.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foretell.planning.acceptance import ALL
from foretell.planning.bench_costs import BenchCosts
from foretell.planning.bench_file import BenchFile, BenchRun
from foretell.planning.costs import Costs, PromptCosts, step_parts
from foretell.planning.group_texts import TextGroup, read_groups
from foretell.planning.groups import Drafts, group_seconds
from foretell.planning.measured_costs import MeasuredCosts
from foretell.planning.shared_prompts import SharedPrompts


@dataclass(frozen=True)
class Compared:
    """One batch size and depth. ``error``: predicted tokens/s over measured, less 1."""

    batch: int
    depth: int
    num_nodes: int
    is_tree: bool
    tokens_per_pass: float
    predicted_tokens_per_s: float
    measured_tokens_per_s: float
    error: float
    predicted_speedup: float
    measured_speedup: float


def against(bench: BenchFile, costs_at: Callable[[int], Costs | None]) -> list[Compared]:
    """Rows by batch and depth, over all prompts; ``costs_at`` a batch size, None where they are not known there."""
    rows = []
    groups = read_groups(bench)
    for batch in bench.batches:
        if (costs := costs_at(batch)) is None:
            continue
        runs = [run for run in bench.at(batch, ALL) if _knows(costs, run)]
        of_batch = groups.get(batch, [])
        if not any(run.depth == 0 for run in runs) or (not of_batch and any(run.end_to_end for run in runs)):
            continue
        predicted = {run.key: _tokens_per_s(bench, of_batch, costs, run) for run in runs}
        plain = next(predicted[run.key] for run in runs if run.depth == 0)
        for run in runs:
            rate = predicted[run.key]
            rows.append(
                Compared(
                    batch,
                    run.depth,
                    run.num_nodes,
                    run.is_tree,
                    run.mean_length,
                    rate,
                    run.tokens_per_s,
                    rate / run.tokens_per_s - 1,
                    rate / plain,
                    run.speedup,
                )
            )
    return rows


def measured_costs(bench: BenchFile) -> Callable[[int], Costs | None]:
    """The file's own c(n)."""

    def at(batch: int) -> Costs | None:
        costs = BenchCosts(bench, batch)
        return costs if costs.is_known else None

    return at


def largest_error(rows: list[Compared]) -> Compared | None:
    """The row that is furthest off; None without rows."""
    return max(rows, key=lambda row: abs(row.error), default=None)


def _knows(costs: Costs, run: BenchRun) -> bool:
    return not isinstance(costs, BenchCosts) or costs.knows_depth(run.depth)


def _tokens_per_s(bench: BenchFile, groups: Sequence[TextGroup], costs: Costs, run: BenchRun) -> float:
    if not run.end_to_end:
        return run.mean_length / sum(step_parts(costs, 1, run.depth, run.num_nodes, run.mean_length))
    rates = []
    for group in groups:
        parts = {part.key: part for part in bench.at(run.batch, group.domain)}
        own = parts.get(run.key, run)
        drafts = Drafts(own.conditional, own.num_nodes)
        prompts = _prompt_costs(costs, group, parts.get((run.batch, 0, 0)))
        seconds = group_seconds(costs, prompts, run.batch, group.texts, drafts)
        rates.append(sum(text.num_tokens for text in group.texts) / seconds)
    return statistics.median(rates)


def _prompt_costs(costs: Costs, group: TextGroup, plain: BenchRun | None) -> PromptCosts:
    if isinstance(costs, MeasuredCosts) and costs.knows_prompts and group.knows_prompts:
        return costs
    return SharedPrompts.of_plain_run(costs, plain, len(group.texts))
