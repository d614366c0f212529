"""Prediction beside measurement: every fixed depth of a bench file, from one source of costs and its own acceptance.

Taken from the file in any case: acceptance of the run itself, lengths and numbers of texts, and for batches, whose
clock has prompts in it, the seconds of reading one prompt, from the plain run of the same batch and domain. Not taken:
tokens/s and step times of the depths that are predicted.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from foretell.planning.acceptance import ALL
from foretell.planning.bench_costs import BenchCosts
from foretell.planning.bench_file import BenchFile, BenchRun
from foretell.planning.groups import group_seconds, group_sizes, num_plain_reads
from foretell.planning.plan import Costs, step_parts


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
    for batch in bench.batches:
        if (costs := costs_at(batch)) is None:
            continue
        runs = [run for run in bench.at(batch, ALL) if _knows(costs, run)]
        predicted = {run.key: _tokens_per_s(bench, costs, run) for run in runs}
        plain = next((predicted[run.key] for run in runs if run.depth == 0), None)
        if plain is None:
            continue
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


def _tokens_per_s(bench: BenchFile, costs: Costs, run: BenchRun) -> float:
    if not run.end_to_end:
        return run.mean_length / sum(step_parts(costs, 1, run.depth, run.num_nodes, run.mean_length))
    rates = []
    for domain in bench.domains(run.batch) or [ALL]:
        parts = {part.key: part for part in bench.at(run.batch, domain)}
        own, plain = parts.get(run.key, run), parts.get((run.batch, 0, 0))
        num_tokens = max(1, round(own.text_tokens))
        for num_texts in group_sizes(own.num_prompts, run.batch):
            prompt_s = _prompt_s(costs, plain, num_texts) if plain else 0.0
            seconds = group_seconds(costs, run.batch, num_texts, num_tokens, own.conditional, own.num_nodes, prompt_s)
            rates.append(num_texts * num_tokens / seconds)
    return statistics.median(rates)


def _prompt_s(costs: Costs, plain: BenchRun, num_texts: int) -> float:
    """Seconds that one prompt adds to its step, from the plain run's share of them."""
    reading_s = plain.prefill_share * num_texts * plain.text_tokens / plain.tokens_per_s
    passes_s = num_plain_reads(num_texts, plain.batch) * costs.pass_s(1, 1)
    return max(0.0, reading_s - passes_s) / num_texts
