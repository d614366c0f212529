"""A machine and a text made up of numbers, for the depth policy: nothing is decoded, time is counted, not spent."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from foretell.decoding.goodput import RowView
from foretell.decoding.policy import DepthPolicy, StepRecord

Cost = Callable[[int, int], float]
MAX_DEPTH = 5


@dataclass
class Machine:
    """``pass_s(rows, nodes)`` and ``draft_s(rows that draft, depth)``: true seconds of a step's parts.

    What is measured has 5 % noise, and one step in 20 takes up to five times as long.
    """

    pass_s: Cost
    draft_s: Cost
    alphas: dict[str, list[float]]
    later_alphas: dict[str, list[float]] = field(default_factory=dict)

    def chances(self, label: str, late: bool) -> list[float]:
        return (self.later_alphas if late and self.later_alphas else self.alphas)[label]

    def step_s(self, depths: list[int]) -> tuple[float, float]:
        drafting = sum(map(bool, depths))
        return (self.draft_s(drafting, max(depths)) if drafting else 0.0), self.pass_s(
            len(depths), len(depths) + sum(depths)
        )


def expected_tokens(alphas: list[float], depth: int) -> float:
    tokens, reached = 1.0, 1.0
    for alpha in alphas[:depth]:
        reached *= alpha
        tokens += reached
    return tokens


@dataclass
class Outcome:
    """True seconds and expected tokens of a run, so that luck has no part in it, and the depths of its steps."""

    tokens: float = 0.0
    seconds: float = 0.0
    depths: list[list[int]] = field(default_factory=list)

    @property
    def goodput(self) -> float:
        return self.tokens / self.seconds


def run(
    machine: Machine,
    all_labels: list[str],
    choose: DepthPolicy | int,
    num_steps: int = 400,
    seed: int = 0,
    num_rows: Callable[[int], int] | None = None,
) -> Outcome:
    """Decode one row a label for ``num_steps``, with a policy or a fixed depth; of a step the first ``num_rows``."""
    rng = random.Random(seed)
    outcome = Outcome()
    for step in range(num_steps):
        labels = all_labels[: num_rows(step)] if num_rows else all_labels
        rows = [RowView(i, MAX_DEPTH, label) for i, label in enumerate(labels)]
        depths = choose.choose(rows) if isinstance(choose, DepthPolicy) else [choose] * len(rows)
        chances = [machine.chances(label, step >= num_steps // 2) for label in labels]
        draft_s, pass_s = machine.step_s(depths)
        outcome.depths.append(depths)
        outcome.seconds += draft_s + pass_s
        outcome.tokens += sum(expected_tokens(a, d) for a, d in zip(chances, depths, strict=True))
        if isinstance(choose, DepthPolicy):
            accepted = []
            for alphas, depth in zip(chances, depths, strict=True):
                k = 0
                while k < depth and rng.random() < alphas[k]:
                    k += 1
                accepted.append(k)
            noise = rng.gauss(1.0, 0.05) * (rng.uniform(1.5, 5) if rng.random() < 0.05 else 1.0)
            choose.observe(
                StepRecord(rows, depths, accepted, draft_s * noise, pass_s * noise * 0.9, pass_s * noise * 0.1)
            )
    return outcome


def fixed_goodputs(
    machine: Machine, labels: list[str], num_steps: int = 400, num_rows: Callable[[int], int] | None = None
) -> list[float]:
    """Goodput of every fixed depth from 0 on."""
    return [run(machine, labels, depth, num_steps, num_rows=num_rows).goodput for depth in range(MAX_DEPTH + 1)]
