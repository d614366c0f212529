"""A group of requests through a batch with fewer places, step by step: rows join, advance by what is accepted, leave.

What ``bench`` does with batches (docs/benchmarks.md): about twice as many prompts as places, handed over at once; the
clock runs from the start to the last token. So the time holds the reading of prompts, and steps with empty places.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from foretell.planning.acceptance import tokens_per_pass
from foretell.planning.plan import Costs, step_parts

_TRIALS = 32
"""Which drafts are accepted is drawn; the mean of so many draws moves by less than 1 %."""


def group_sizes(num_prompts: int, batch: int) -> list[int]:
    """Prompts of each group, as ``bench`` makes them: about twice ``batch`` each."""
    num_groups = max(1, round(num_prompts / (2 * batch)))
    return [len(range(start, num_prompts, num_groups)) for start in range(num_groups)]


def group_seconds(
    costs: Costs,
    batch: int,
    num_texts: int,
    text_tokens: int,
    conditional: Sequence[float],
    num_nodes: int,
    prompt_s: float,
) -> float:
    """Mean seconds from start to last token of ``num_texts`` texts of ``text_tokens`` each, ``batch`` at a time.

    Every prompt that is read adds ``prompt_s`` to its step, which gives the text's first token.
    """
    known: dict[int, float] = {}
    depth, expected = len(conditional), tokens_per_pass(conditional)

    def step_s(rows: int) -> float:
        if rows not in known:
            known[rows] = sum(step_parts(costs, rows, depth, num_nodes, expected))
        return known[rows]

    dice = random.Random(0)
    trials = 1 if not depth else _TRIALS
    total = 0.0
    for _ in range(trials):
        waiting = num_texts
        rows: list[int] = []
        while waiting or rows:
            joining = min(waiting, batch - len(rows))
            waiting -= joining
            total += (step_s(len(rows)) if rows else costs.pass_s(1, 1)) + joining * prompt_s
            rows = [left - _advance(dice, conditional) for left in rows] + [text_tokens - 1] * joining
            rows = [left for left in rows if left > 0]
    return total / trials


def num_plain_reads(num_texts: int, batch: int) -> int:
    """Steps that read prompts where nothing is drafted: all texts of a batch end together."""
    return -(-num_texts // batch)


def _advance(dice: random.Random, conditional: Sequence[float]) -> int:
    taken = 1
    for alpha in conditional:
        if dice.random() >= alpha:
            break
        taken += 1
    return taken
