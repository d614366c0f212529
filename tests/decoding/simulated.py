"""A machine and a text made up of numbers, for the depth policy: nothing is decoded, time is counted, not spent."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from foretell.decoding.estimates import RowView
from foretell.decoding.policy import DepthPolicy, RowRecord, StepRecord
from foretell.decoding.shape import Shape

Cost = Callable[[int, int], float]
MAX_DEPTH = 5


@dataclass
class Machine:
    """``pass_s(rows, nodes)`` and ``draft_s(rows that draft, depth)``: true seconds of a step's parts.

    A level of a tree has as many tries as it has nodes, and takes half as long again to draft as one of a chain. What
    is measured has 5 % noise, and one step in 20 takes up to five times as long.
    """

    pass_s: Cost
    draft_s: Cost
    alphas: dict[str, list[float]]
    later_alphas: dict[str, list[float]] = field(default_factory=dict)

    def chances(self, label: str, late: bool, shape: Shape) -> list[float]:
        alphas = (self.later_alphas if late and self.later_alphas else self.alphas)[label]
        return alphas if shape.is_chain else [1 - (1 - a) ** (shape.num_nodes / shape.depth) for a in alphas]

    def step_s(self, shapes: list[Shape]) -> tuple[float, float]:
        num_nodes = len(shapes) + sum(shape.num_nodes for shape in shapes)
        chains = [shape.depth for shape in shapes if shape.depth and shape.is_chain]
        trees = [shape.depth for shape in shapes if not shape.is_chain]
        draft_s = self.draft_s(len(chains), max(chains)) if chains else 0.0
        draft_s += 1.5 * self.draft_s(len(trees), max(trees)) if trees else 0.0
        return draft_s, self.pass_s(len(shapes), num_nodes)


def expected_tokens(alphas: list[float], depth: int) -> float:
    tokens, reached = 1.0, 1.0
    for alpha in alphas[:depth]:
        reached *= alpha
        tokens += reached
    return tokens


def recorded(rows: list[RowView], shapes: list[Shape], accepted: list[int], seconds: tuple[float, float]) -> StepRecord:
    """A step whose drafts were judged whole; ``seconds``: drafting, and the rest."""
    records = [
        RowRecord(row, shape, shape.num_nodes, k, shape.depth)
        for row, shape, k in zip(rows, shapes, accepted, strict=True)
    ]
    return StepRecord(records, seconds[0], 0.9 * seconds[1], 0.1 * seconds[1])


@dataclass
class Outcome:
    """True seconds and expected tokens of a run, so that luck has no part in it, and the shapes of its steps."""

    tokens: float = 0.0
    seconds: float = 0.0
    shapes: list[list[Shape]] = field(default_factory=list)

    @property
    def goodput(self) -> float:
        return self.tokens / self.seconds


def run(
    machine: Machine,
    all_labels: list[str],
    choose: DepthPolicy | Shape,
    num_steps: int = 400,
    seed: int = 0,
    num_rows: Callable[[int], int] | None = None,
    num_nodes: int = 0,
) -> Outcome:
    """Decode one row a label for ``num_steps``, with a policy or a fixed shape; of a step the first ``num_rows``."""
    rng = random.Random(seed)
    outcome = Outcome()
    for step in range(num_steps):
        labels = all_labels[: num_rows(step)] if num_rows else all_labels
        rows = [RowView(i, MAX_DEPTH, label, None, num_nodes) for i, label in enumerate(labels)]
        shapes = choose.choose(rows) if isinstance(choose, DepthPolicy) else [choose] * len(rows)
        late = step >= num_steps // 2
        chances = [machine.chances(label, late, shape) for label, shape in zip(labels, shapes, strict=True)]
        draft_s, pass_s = machine.step_s(shapes)
        outcome.shapes.append(shapes)
        outcome.seconds += draft_s + pass_s
        outcome.tokens += sum(expected_tokens(a, shape.depth) for a, shape in zip(chances, shapes, strict=True))
        if isinstance(choose, DepthPolicy):
            accepted = []
            for alphas, shape in zip(chances, shapes, strict=True):
                k = 0
                while k < shape.depth and rng.random() < alphas[k]:
                    k += 1
                accepted.append(k)
            noise = rng.gauss(1.0, 0.05) * (rng.uniform(1.5, 5) if rng.random() < 0.05 else 1.0)
            choose.observe(recorded(rows, shapes, accepted, (draft_s * noise, pass_s * noise)))
    return outcome


def fixed_goodputs(
    machine: Machine, labels: list[str], num_steps: int = 400, num_rows: Callable[[int], int] | None = None
) -> list[float]:
    """Goodput of every fixed depth from 0 on."""
    return [
        run(machine, labels, Shape.chain(depth), num_steps, num_rows=num_rows).goodput for depth in range(MAX_DEPTH + 1)
    ]
