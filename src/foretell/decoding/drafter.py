"""Drafter: what a decode step asks of whoever guesses ahead."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Protocol

from foretell.decoding.cache import KVCache
from foretell.decoding.sequence import Sequence
from foretell.decoding.shape import Shape
from foretell.models.decoder import States
from foretell.types import Draft

PIECE = 512
"""Entries of a prompt that a drafter reads in one pass: masks grow with their product with all that is read."""
NO_CACHE = 2**62
"""``num_final`` of a drafter that keeps no entries: none of them can be missing."""


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
    def caches(self) -> Items[KVCache]:
        """Keys and values that it keeps in the rows' blocks."""

    @property
    def num_bytes(self) -> int:
        """Memory held beyond the trunk: weights, keys and values, indices."""
