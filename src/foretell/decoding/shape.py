"""Shape: how much is drafted for a row of a step."""

from __future__ import annotations

from dataclasses import dataclass

MAX_BRANCHES = 4
"""Children that a greedy node may have, and nodes of a level that get children: more are seldom right."""


@dataclass(frozen=True)
class Shape:
    """``depth`` levels and ``num_nodes`` nodes; equal for a chain, 0 for nothing."""

    depth: int
    num_nodes: int

    @classmethod
    def chain(cls, depth: int) -> Shape:
        """One branch."""
        return cls(depth, depth)

    def cut(self, depth: int) -> Shape:
        """At most ``depth`` levels; a chain stays a chain."""
        if depth >= self.depth:
            return self
        return Shape(depth, depth if self.is_chain or not depth else self.num_nodes)

    @property
    def is_chain(self) -> bool:
        """True for one branch, and for nothing."""
        return self.num_nodes <= self.depth

    @property
    def widest(self) -> int:
        """Nodes of a greedy row's level that get children."""
        return 1 if self.is_chain else max(2, min(MAX_BRANCHES, self.num_nodes // self.depth))

    @property
    def most_nodes(self) -> int:
        """Nodes of a greedy row's draft where nothing stands against any: few levels hold few of them."""
        if self.is_chain:
            return self.num_nodes
        frontier, total = 1, 0
        for _ in range(self.depth):
            level = frontier * min(MAX_BRANCHES, self.num_nodes)
            total += level
            frontier = min(level, self.widest)
        return min(total, self.num_nodes)
