"""TreeGrower: which tokens are drafted from a depth's logits: one rule for every drafter, chains and trees alike.

A greedy row's tree is made of candidates by cumulative probability and pruned to its budget of nodes at the end (as in
EAGLE-2, arXiv 2406.16858). A sampled row's children are drawn without replacement; how many a node gets is settled
before they are drawn, from what is above them alone, or the verified law would not be the trunk's.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence as Items

import torch

from foretell.decoding.sampling import draw, filtered_probs
from foretell.decoding.sequence import Sequence
from foretell.decoding.shape import MAX_BRANCHES, Shape
from foretell.models.greedy import argmax
from foretell.models.heads import Heads
from foretell.types import Draft


class TreeGrower:
    """Grows one row's draft level by level. ``frontier``: the nodes whose children come next, -1 = the root.

    ``depth``: levels that have grown.
    """

    def __init__(self, row: Sequence, shape: Shape) -> None:
        self.row = row
        self.shape = shape
        self.draft = Draft()
        self.frontier = [-1]
        self.depth = 0
        self._log_mass: list[float] = []  # of the path down to a node, as the drafter sees it
        self._levels = _level_sizes(shape)

    @property
    def is_chain(self) -> bool:
        """One branch: every level is one token."""
        return self.shape.is_chain

    @property
    def is_plain(self) -> bool:
        """A chain of likeliest tokens."""
        return self.is_chain and self.row.params.greedy and not self.row.rules.active

    def prefixes(self) -> list[list[int]]:
        """Drafted tokens down to each node of the frontier."""
        return [self.draft.prefix(node) for node in self.frontier]

    def grow_greedy_chain(self, token_id: int) -> None:
        """The next token of a greedy chain is known already."""
        self.frontier = [self.draft.add(token_id, self.frontier[0])]
        self.depth += 1

    def grow(self, logits_FV: torch.Tensor, heads: Heads | None = None) -> None:
        """Children of the frontier from its logits (F, V).

        ``heads``: whose draft vocabulary the logits are over; without, they are over the trunk's.
        """
        if self.row.rules.active:
            logits_FV = self._ruled(_spread(logits_FV, heads, -math.inf))
            heads = None
        if self.row.params.greedy:
            self._grow_greedy(logits_FV, heads)
        else:
            # Heads may be broken where the trunk is not: a guess is a guess.
            finite_FV = logits_FV.nan_to_num(nan=0.0, neginf=-math.inf)
            self._grow_sampled(_spread(filtered_probs(finite_FV, self.row.params), heads, 0.0))
        self.depth += 1

    def finish(self) -> Draft:
        """The draft, pruned to its likeliest nodes; none is likelier than its parent, so that paths stay whole."""
        draft, budget = self.draft, self.shape.num_nodes
        if len(draft) <= budget:
            return draft
        best = sorted(range(len(draft)), key=lambda n: -self._log_mass[n])[:budget]
        kept = sorted(best)
        new = {-1: -1} | {node: i for i, node in enumerate(kept)}
        return Draft(
            [draft.token_ids[n] for n in kept], [new[draft.parents[n]] for n in kept], [draft.probs[n] for n in kept]
        )

    def _ruled(self, logits_FV: torch.Tensor) -> torch.Tensor:
        try:
            return self.row.rules.apply(logits_FV, self.row.token_ids, self.prefixes())
        except (Exception, SystemExit):  # the request's own code, on a path that the text may never take
            return logits_FV

    def _grow_greedy(self, logits_FV: torch.Tensor, heads: Heads | None) -> None:
        num_branches = 1 if self.is_chain else min(MAX_BRANCHES, self.shape.num_nodes, logits_FV.shape[-1])
        best, ids = logits_FV.float().log_softmax(-1).topk(num_branches, dim=-1)
        token_ids = (ids if heads is None else heads.to_token_ids(ids)).tolist()
        level = []
        for f, parent in enumerate(self.frontier):
            above = self._log_mass[parent] if parent >= 0 else 0.0
            for token_id, log_p in zip(token_ids[f], best[f].tolist(), strict=True):
                if log_p == -math.inf:  # the rules leave fewer tokens than branches
                    continue
                level.append(self.draft.add(token_id, parent))
                self._log_mass.append(above + log_p)
        # Candidates below the budget's worst so far cannot be kept, nor can their children.
        likeliest = sorted(level, key=lambda n: -self._log_mass[n])[: self.shape.widest]
        self.frontier = sorted(likeliest)

    def _grow_sampled(self, probs_FV: torch.Tensor) -> None:
        level: list[int] = []
        for f, num_children in enumerate(self._shares(self._levels[self.depth])):
            parent, left_V = self.frontier[f], probs_FV[f]
            above = self._log_mass[parent] if parent >= 0 else 0.0
            for i in range(num_children):
                if i and not bool((left_V > 0).any()):  # fewer tokens have mass than there are children
                    break
                token_id = draw(left_V, self.row.generator)
                level.append(self.draft.add(token_id, parent, probs_FV[f]))
                self._log_mass.append(above + math.log(max(float(probs_FV[f, token_id]), 1e-30)))
                if i + 1 < num_children:
                    left_V = left_V.clone()
                    left_V[token_id] = 0
        self.frontier = level

    def _shares(self, num_children: int) -> list[int]:
        """Children of each node of the frontier: the likelier its path, the more; each further one counts half."""
        masses = [math.exp(self._log_mass[node]) if node >= 0 else 1.0 for node in self.frontier]
        shares = [0] * len(masses)
        heap = [(-mass, f) for f, mass in enumerate(masses)]
        heapq.heapify(heap)
        for _ in range(num_children):
            weight, f = heap[0]
            shares[f] += 1
            heapq.heapreplace(heap, (weight / 2, f))
        return shares


class Branches(TreeGrower):
    """A row's draft with what its branches left in the heads: ``states`` (n, D) of the last depth, by expanded node,
    and, where one module serves every depth, the ``entries`` of nodes.

    ``lead``: levels that are there before the heads begin, 0, or 1 where the trunk they belong to is itself a drafter:
    it has read the root, and said what comes next.
    """

    def __init__(self, row: Sequence, shape: Shape, lead: int = 0) -> None:
        super().__init__(row, shape)
        self.lead = lead
        self.states: dict[int, torch.Tensor] = {}
        self.entries: dict[int, int] = {}


def grow_all(growers: Items[TreeGrower], logits_FV: torch.Tensor, heads: Heads | None = None) -> None:
    """One more level for every row; ``logits_FV``: the nodes of all frontiers, row after row."""
    sizes = [len(grower.frontier) for grower in growers]
    if any(grower.is_plain for grower in growers):  # one argmax for all of them
        best_ids = argmax(logits_FV)
        token_ids = (best_ids if heads is None else heads.to_token_ids(best_ids)).tolist()
    start = 0
    for grower, size in zip(growers, sizes, strict=True):
        if grower.is_plain:
            grower.grow_greedy_chain(token_ids[start])
        else:
            grower.grow(logits_FV[start : start + size], heads)
        start += size


def _level_sizes(shape: Shape) -> list[int]:
    """Nodes of every level of a sampled row's tree: each level half of what is left, the last ones one at least."""
    sizes, left = [], shape.num_nodes
    for level in range(shape.depth):
        below = shape.depth - level - 1
        size = max(1, min(left - below, -(-left // 2))) if below else max(1, left)
        sizes.append(size)
        left -= size
    return sizes


def _spread(values_FV: torch.Tensor, heads: Heads | None, elsewhere: float) -> torch.Tensor:
    """Values over the heads' draft vocabulary -> over the trunk's, ``elsewhere`` for tokens that it lacks."""
    if heads is None or heads.draft_ids_V is None:
        return values_FV
    full_FV = values_FV.new_full((len(values_FV), heads.trunk.vocab_size), elsewhere)
    return full_FV.index_copy_(1, heads.draft_ids_V, values_FV)
