"""StackedDrafter: several drafters in turn; the first that has something to say for a row drafts it."""

from __future__ import annotations

from collections.abc import Sequence as Items

from foretell.decoding.drafter import Drafter
from foretell.decoding.sequence import Sequence
from foretell.models.decoder import States
from foretell.types import Draft


class StackedDrafter:
    """Asks ``drafters`` in order, each only for the rows that those before it left empty.

    All of them observe every committed token, so that none falls behind while another drafts.
    """

    def __init__(self, drafters: Items[Drafter]) -> None:
        self.drafters = list(drafters)

    def admit(self, slot: int) -> None:
        """A new row takes ``slot``."""
        for drafter in self.drafters:
            drafter.admit(slot)

    def move(self, source: int, target: int) -> None:
        """A row changes slots."""
        for drafter in self.drafters:
            drafter.move(source, target)

    def observe(self, row: Sequence, index: int, states: States) -> None:
        """What was committed, whoever drafted it."""
        for drafter in self.drafters:
            drafter.observe(row, index, states)

    def depth_for(self, row: Sequence) -> int:
        """As deep as the deepest goes."""
        return max(drafter.depth_for(row) for drafter in self.drafters)

    def draft(self, rows: list[Sequence], depths: list[int]) -> list[Draft]:
        """One chain a row, from the first drafter that makes one."""
        drafts = [Draft() for _ in rows]
        for drafter in self.drafters:
            limits = [min(depth, drafter.depth_for(row)) for row, depth in zip(rows, depths, strict=True)]
            asked = [b for b, limit in enumerate(limits) if limit and not drafts[b].token_ids]
            if asked:
                made = drafter.draft([rows[b] for b in asked], [limits[b] for b in asked])
                for b, draft in zip(asked, made, strict=True):
                    drafts[b] = draft
        return drafts

    @property
    def num_bytes(self) -> int:
        """Memory of all of them."""
        return sum(drafter.num_bytes for drafter in self.drafters)
