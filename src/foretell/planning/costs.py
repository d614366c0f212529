"""Costs: seconds of a step's parts, from wherever they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Costs(Protocol):
    """Seconds of a step's two parts: ``Roofline`` computes them, ``MeasuredCosts`` puts measured kernels together."""

    def pass_s(self, batch: int, nodes: float) -> float:
        """A pass of the trunk over ``nodes`` tokens of each row."""

    def draft_s(self, batch: int, depth: int, num_true: float, width: float) -> float:
        """Drafting, see ``Roofline.draft_levels``."""


class PromptCosts(Protocol):
    """What reading prompts adds to a step."""

    def join_s(self, rows: int, nodes: float, pieces: Sequence[int], num_first: int) -> float:
        """Seconds that a pass over ``nodes`` tokens of each of ``rows`` takes longer because it also reads ``pieces``
        of prompts, tokens each, of which ``num_first`` end a prompt and get its first token. The whole pass where no
        row decodes.
        """

    def catch_up_s(self, rows: int, depth: int, prompts: Sequence[int]) -> float:
        """Seconds that drafting ``depth`` deep for ``rows`` takes longer where the heads have these prompts to read,
        tokens each.
        """


def step_parts(costs: Costs, batch: int, depth: int, num_nodes: float, num_tokens: float) -> tuple[float, float]:
    """Seconds of the pass and of drafting, where ``num_tokens`` a row were added by the step before."""
    draft_s = costs.draft_s(batch, depth, num_tokens, num_nodes / depth) if depth else 0.0
    return costs.pass_s(batch, 1 + num_nodes), draft_s
