"""best_depths: the depths of a step that maximise goodput = expected tokens / predicted seconds.

Trees are not chosen here yet; they would fit as follows. A kind of draft is its number of nodes at each depth:
(1, 1, 1) for a chain, (4, 6, 6) for a tree, so that (depth, kind) gives num_nodes. alpha_k of a tree is the chance that
one of its nodes at depth k is accepted, measured in an ``AcceptanceByClass`` of its own; E[K] keeps its form. Its
drafting has a cost table of its own, and its pass costs c(n) like any other. The search runs once a kind, with
candidates ordered by gain a node; the kind with the higher goodput is taken, and the others are probed.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretell.decoding.acceptance import AcceptanceByClass
from foretell.decoding.cost import StepCost

MARGIN = 0.02  # predicted gain below which drafting is not worth the doubt


@dataclass(frozen=True)
class RowView:
    """What the policy sees of a row.

    ``depth_limit``: deepest draft that can still be used; ``label``: request class; ``fixed_depth``: asked for by the
    request, so not to be chosen, but it shares the pass.
    """

    row_id: int
    depth_limit: int
    label: str = ""
    fixed_depth: int | None = None


@dataclass(frozen=True)
class Choice:
    """A depth a row, and the tokens a second that they promise; None while no cost is known."""

    depths: list[int]
    tokens_per_s: float | None


def best_depths(
    rows: list[RowView],
    limits: list[int],
    fixed: list[int],
    num_other_nodes: int,
    cost: StepCost,
    acceptance: AcceptanceByClass,
) -> Choice:
    """Depth of each row, from 0 to its limit, or its fixed one. ``num_other_nodes``: of the pass, no root and no draft.

    Which node to add next is settled by gain alone, because the seconds depend on the number of nodes and the greatest
    depth: so for each greatest depth, nodes are added in the order of gain. All lengths of that order are tried,
    because the first row to draft pays for what the next ones share, and because costs come in stairs.
    """
    num_nodes = len(rows) + sum(fixed)
    num_drafting, fixed_depth = sum(map(bool, fixed)), max(fixed)
    expected = float(len(rows))
    candidates: list[tuple[float, int, int]] = []  # gain, depth (negative: of equal gains the shallower first), row
    for i, (row, limit) in enumerate(zip(rows, limits, strict=True)):
        if fixed[i]:
            expected += sum(acceptance.gains(row.label, fixed[i], row.row_id))
        elif limit:
            gains = acceptance.gains(row.label, limit, row.row_id)
            candidates += [(gain, -k, i) for k, gain in enumerate(gains, 1)]
    pass_s = cost.pass_range(len(rows), num_nodes + num_other_nodes, num_nodes + num_other_nodes + len(candidates))
    if pass_s is None:
        return Choice(fixed, None)
    if num_other_nodes:  # a prompt in the pass is paid for anyway: it only moves the place on c(n) where drafts begin
        prompt_s = pass_s[0] - (cost.pass_s(len(rows), num_nodes) or 0.0)
        pass_s = [seconds - prompt_s for seconds in pass_s]
    candidates.sort(reverse=True)
    plain = highest = expected / (pass_s[0] + cost.draft_s(num_drafting, fixed_depth))
    taken: list[tuple[float, int, int]] = []
    for depth in range(1, max(limits) + 1):
        reachable = [c for c in candidates if c[1] >= -depth]
        draft_s = cost.draft_range(num_drafting + len(rows), max(depth, fixed_depth))
        tokens, drafting, best = expected, num_drafting, 0
        for count, (gain, minus_k, _) in enumerate(reachable, 1):
            tokens += gain
            drafting += minus_k == -1
            if tokens > highest * (pass_s[count] + draft_s[drafting]):
                highest, best = tokens / (pass_s[count] + draft_s[drafting]), count
        if best:
            taken = reachable[:best]
    if highest < plain * (1 + MARGIN):
        return Choice(fixed, plain)
    depths = list(fixed)
    for _, minus_k, i in taken:
        depths[i] = max(depths[i], -minus_k)
    return Choice(depths, highest)
