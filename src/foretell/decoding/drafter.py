"""Drafter: what a decode step asks of whoever guesses ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from foretell.decoding.sequence import Sequence
from foretell.models.decoder import States
from foretell.types import Draft

NO_CACHE = 2**62
"""``num_final`` of a drafter that keeps no entries: none of them can be missing."""


@dataclass(frozen=True)
class Shape:
    """How much is drafted for a row: ``depth`` levels and ``num_nodes`` nodes; equal for a chain, 0 for nothing."""

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


class Drafter(Protocol):
    """Guesses tokens for rows. Whatever it guesses, the text stays the trunk's; only speed changes.

    A drafter may read a row's tokens when it is asked for a draft, so that it does no work for rows it is not asked
    for; the trunk's states come by ``observe`` alone. What it keeps of a row lies in the row's blocks, or by the row
    itself as a key.
    """

    def admit(self, row: Sequence) -> None:
        """A new row; entries below its ``num_cached`` are final already, in the drafter's caches too."""

    def forget(self, row: Sequence) -> None:
        """The row has ended, or must start anew."""

    def observe(self, row: Sequence, index: int, states: States) -> None:
        """The row's drafts were judged: its tokens up to the root are final.

        ``states``: the trunk's, (n, D) each, of the tokens from ``index`` of the row on; the root has none yet.
        """

    def depth_for(self, row: Sequence) -> int:
        """How deep this row can be drafted now, by the drafter's own limits."""

    def draft(self, rows: list[Sequence], shapes: list[Shape]) -> list[Draft]:
        """One tree a row, no larger than ``shapes[b]``, whose depth is at most ``depth_for`` the row.

        A sampled row's token is drawn with the row's generator from ``Draft.probs``, or is certain (None there).
        """

    def num_final(self, row: Sequence) -> int:
        """Entries of the row that are final in all caches of the drafter; NO_CACHE where it has none."""

    @property
    def num_bytes(self) -> int:
        """Memory held beyond the trunk: weights, keys and values, indices."""
