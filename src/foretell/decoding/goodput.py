"""best_shapes: the drafts of a step that maximise goodput = expected tokens / predicted seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretell.decoding.estimates import Estimates, RowView
from foretell.decoding.shape import Shape

MARGIN = 0.02  # predicted gain below which drafting is not worth the doubt
TREE_LEVELS = (2, 3, 4)
"""Levels of the trees that are considered: two were best where half of the drafts are right (docs/benchmarks.md)."""


@dataclass(frozen=True)
class Choice:
    """A shape a row, and the tokens a second that they promise; None while no cost is known."""

    shapes: list[Shape]
    tokens_per_s: float | None


def best_shapes(
    rows: Sequence[RowView], limits: Sequence[int], num_other_nodes: int, estimates: Estimates, trees: bool = True
) -> Choice:
    """Each row's chain of 0 to ``limits[i]`` tokens, or its tree, or its fixed shape (its limit is 0 then).

    ``num_other_nodes``: of the pass, no root and no draft. ``trees``: they are known well enough to be chosen.
    """
    fixed = [row.fixed.cut(row.depth_limit) if row.fixed else Shape.chain(0) for row in rows]
    if estimates.cost.pass_s(len(rows), len(rows)) is None:
        return Choice(fixed, None)
    plain = estimates.goodput(rows, fixed, num_other_nodes)
    best = _best_chains(rows, limits, fixed, num_other_nodes, estimates)
    if trees:
        best = _with_trees(rows, limits, best, num_other_nodes, estimates)
    shapes, highest = best
    return Choice(fixed, plain) if highest < plain * (1 + MARGIN) else Choice(shapes, highest)


def tree_for(row: RowView, limit: int, levels: int) -> Shape | None:
    """The tree of at most so many levels that may be drafted for a row; None where none may."""
    levels = min(levels, limit, row.num_nodes - 1)
    return Shape(levels, row.num_nodes) if levels >= TREE_LEVELS[0] else None


def _best_chains(
    rows: Sequence[RowView], limits: Sequence[int], fixed: list[Shape], num_other_nodes: int, estimates: Estimates
) -> tuple[list[Shape], float]:
    """Which node to add next is settled by gain alone, because the seconds depend on the number of nodes and the
    greatest depth: so for each greatest depth, nodes are added in the order of gain. All lengths of that order are
    tried, because the first row to draft pays for what the next ones share, and because costs come in stairs.
    """
    chains = [shape.depth for shape in fixed if shape.depth and shape.is_chain]
    fixed_depth = max(chains, default=0)
    expected = estimates.tokens(rows, fixed)
    candidates: list[tuple[float, int, int]] = []  # gain, depth (negative: of equal gains the shallower first), row
    for i, (row, limit) in enumerate(zip(rows, limits, strict=True)):
        if limit:
            gains = estimates.chains.gains(row.label, limit, row.row_id)
            candidates += [(gain, -k, i) for k, gain in enumerate(gains, 1)]
    num_nodes = len(rows) + sum(shape.num_nodes for shape in fixed)
    pass_s = estimates.pass_range(len(rows), num_nodes, num_nodes + len(candidates), num_other_nodes)
    trees_s = estimates.draft_s([shape for shape in fixed if not shape.is_chain])
    candidates.sort(reverse=True)
    highest = expected / (pass_s[0] + trees_s + estimates.cost.draft_s(len(chains), fixed_depth))
    taken: list[tuple[float, int, int]] = []
    for depth in range(1, max(limits) + 1):
        reachable = [c for c in candidates if c[1] >= -depth]
        draft_s = estimates.cost.draft_range(len(chains) + len(rows), max(depth, fixed_depth))
        tokens, drafting, best = expected, len(chains), 0
        for count, (gain, minus_k, _) in enumerate(reachable, 1):
            tokens += gain
            drafting += minus_k == -1
            seconds = pass_s[count] + trees_s + draft_s[drafting]
            if tokens > highest * seconds:
                highest, best = tokens / seconds, count
        if best:
            taken = reachable[:best]
    shapes = list(fixed)
    for _, minus_k, i in taken:
        if -minus_k > shapes[i].depth:
            shapes[i] = Shape.chain(-minus_k)
    return shapes, highest


def _with_trees(
    rows: Sequence[RowView],
    limits: Sequence[int],
    chains: tuple[list[Shape], float],
    num_other_nodes: int,
    estimates: Estimates,
) -> tuple[list[Shape], float]:
    """Trees instead of chains where they promise the most more tokens: for one row, two, four, ... all of them."""
    best = chains
    for levels in TREE_LEVELS if any(row.num_nodes for row in rows) else ():
        gains: list[tuple[float, int, Shape]] = []
        for i, (row, limit, chain) in enumerate(zip(rows, limits, chains[0], strict=True)):
            if tree := tree_for(row, limit, levels):
                gains.append((estimates.gain(row, tree) - estimates.gain(row, chain), i, tree))
        gains.sort(key=lambda each: -each[0])
        shapes = list(chains[0])
        for count, (_, i, tree) in enumerate(gains, 1):
            shapes[i] = tree
            if count & (count - 1) == 0 or count == len(gains):
                goodput = estimates.goodput(rows, shapes, num_other_nodes)
                if goodput > best[1]:
                    best = list(shapes), goodput
    return best
