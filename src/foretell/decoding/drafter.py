"""Drafter: what a decode step asks of whoever guesses ahead."""

from __future__ import annotations

from typing import Protocol

from foretell.decoding.sequence import Sequence
from foretell.models.decoder import States
from foretell.types import Draft


class Drafter(Protocol):
    """Guesses tokens for rows that sit in slots. Whatever it guesses, the text stays the trunk's; only speed changes.

    A drafter may read a row's tokens when it is asked for a draft, so that it does no work for rows it is not asked
    for; the trunk's states come by ``observe`` alone.
    """

    def admit(self, slot: int) -> None:
        """A new row takes ``slot``: what was known of the old one is forgotten."""

    def move(self, source: int, target: int) -> None:
        """A row changes slots."""

    def observe(self, row: Sequence, index: int, states: States) -> None:
        """The row's drafts were judged: its tokens up to the root are final.

        ``states``: the trunk's, (n, D) each, of the tokens from ``index`` of the row on; the root has none yet.
        """

    def depth_for(self, row: Sequence) -> int:
        """How deep this row can be drafted now: its own limit, and the drafter's."""

    def draft(self, rows: list[Sequence], depths: list[int]) -> list[Draft]:
        """One chain a row, at most ``depths[b]`` tokens long, which is at most ``depth_for`` the row.

        A sampled row's token is drawn with the row's generator from ``Draft.probs_KV``, or is certain (None there).
        """

    @property
    def num_bytes(self) -> int:
        """Memory held beyond the trunk: weights, keys and values, indices."""
