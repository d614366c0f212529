"""Where drafting stops paying: the least acceptance, and the first batch size at which plain decoding is as fast."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.planning.acceptance import Acceptance, tokens_per_pass
from foretell.planning.costs import Costs, step_parts

_BISECTIONS = 40


def break_even_acceptance(costs: Costs, batch: int, depth: int, num_nodes: int) -> float | None:
    """Equal alpha at every depth with speed-up 1, by bisection; None where even certain drafts lose."""
    plain_s = costs.pass_s(batch, 1)

    def gains(alpha: float) -> bool:
        expected = tokens_per_pass([alpha] * depth)
        return expected * plain_s >= sum(step_parts(costs, batch, depth, num_nodes, expected))

    if not gains(1.0):
        return None
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if gains(middle) else (middle, high)
    return high


def break_even_batch(
    costs: Costs, shapes: Sequence[tuple[int, int]], acceptance: Acceptance, max_batch: int
) -> int | None:
    """Every batch size is tried: with experts the gain falls, rises and falls again, so halving would miss it."""
    expected = {depth: acceptance.tokens_per_pass(depth) for depth, _ in shapes}
    for batch in range(1, max_batch + 1):
        plain_s = costs.pass_s(batch, 1)
        if not any(
            depth and expected[depth] * plain_s > sum(step_parts(costs, batch, depth, nodes, expected[depth]))
            for depth, nodes in shapes
        ):
            return batch
    return None
