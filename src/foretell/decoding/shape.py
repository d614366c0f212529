"""Shape: how much is drafted for a row of a step."""

from __future__ import annotations

from dataclasses import dataclass


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
