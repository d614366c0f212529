"""Estimates: what a step of given shapes is believed to cost and to bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretell.decoding.acceptance import AcceptanceByClass
from foretell.decoding.cost import StepCost
from foretell.decoding.shape import Shape


@dataclass(frozen=True)
class RowView:
    """What the policy sees of a row.

    ``depth_limit``: deepest draft that can still be used; ``label``: request class; ``fixed``: asked for by the
    request, so not to be chosen, but it shares the pass; ``num_nodes``: of a tree that may be drafted for it, 0 where
    only chains may.
    """

    row_id: int
    depth_limit: int
    label: str = ""
    fixed: Shape | None = None
    num_nodes: int = 0


class Estimates:
    """Costs, and the acceptance of chains and of trees, which differ: a tree has several tries at a depth, the more the
    fewer levels its nodes are spread over.
    """

    def __init__(self) -> None:
        self.cost = StepCost()
        self.chains = AcceptanceByClass()
        self._trees: dict[int, AcceptanceByClass] = {}

    def acceptance(self, shape: Shape) -> AcceptanceByClass:
        """That of chains, or of trees with as many levels."""
        return self.chains if shape.is_chain else self._trees.setdefault(shape.depth, AcceptanceByClass())

    def advance(self) -> None:
        """A step is over: what it observed counts from now on."""
        for acceptance in (self.chains, *self._trees.values()):
            acceptance.advance()

    def forget(self, row_id: int) -> None:
        """A row is finished."""
        for acceptance in (self.chains, *self._trees.values()):
            acceptance.forget(row_id)

    def gain(self, row: RowView, shape: Shape) -> float:
        """Accepted tokens to expect."""
        return sum(self.acceptance(shape).gains(row.label, shape.depth, row.row_id)) if shape.depth else 0.0

    def tokens(self, rows: Sequence[RowView], shapes: Sequence[Shape]) -> float:
        """Tokens that a step brings: E[K] of every row."""
        return sum(
            self.acceptance(shape).expected_tokens(row.label, shape.depth, row.row_id)
            for row, shape in zip(rows, shapes, strict=True)
        )

    def draft_s(self, shapes: Sequence[Shape]) -> float:
        """Seconds of drafting."""
        chains = [shape.depth for shape in shapes if shape.depth and shape.is_chain]
        trees = [shape.depth for shape in shapes if not shape.is_chain]
        seconds = self.cost.draft_s(len(chains), max(chains)) if chains else 0.0
        return seconds + (self.cost.tree_s(len(trees), max(trees)) if trees else 0.0)

    def step_s(self, shapes: Sequence[Shape], num_other_nodes: int = 0) -> float:
        """Seconds of a step without those of prompts, ``num_other_nodes`` of them; 0 before anything was measured.

        A prompt in the pass is paid for anyway: it only moves the place on c(n) where drafts begin.
        """
        num_nodes = len(shapes) + sum(shape.num_nodes for shape in shapes)
        return self.pass_range(len(shapes), num_nodes, num_nodes, num_other_nodes)[0] + self.draft_s(shapes)

    def pass_range(self, num_rows: int, low: int, high: int, num_other_nodes: int) -> list[float]:
        """Seconds of passes of ``low`` to ``high`` nodes beside a prompt's, the prompt's own seconds taken off."""
        found = self.cost.pass_range(num_rows, low + num_other_nodes, high + num_other_nodes)
        if found is None or not num_other_nodes:
            return found or [0.0] * (high + 1 - low)
        with_prompt, alone = (self.cost.pass_s(num_rows, num_rows + n) or 0.0 for n in (num_other_nodes, 0))
        return [seconds - (with_prompt - alone) for seconds in found]

    def goodput(self, rows: Sequence[RowView], shapes: Sequence[Shape], num_other_nodes: int = 0) -> float:
        """Tokens a second; once something was measured."""
        return self.tokens(rows, shapes) / self.step_s(shapes, num_other_nodes)
