"""StackedDrafter: several drafters in turn; the first that has something to say for a row drafts it."""

from __future__ import annotations

from collections.abc import Sequence as Items

from foretell.decoding.cache import KVCache
from foretell.decoding.drafter import Drafter
from foretell.decoding.sequence import Sequence
from foretell.decoding.shape import Shape
from foretell.models.decoder import States
from foretell.types import Draft


class StackedDrafter:
    """Asks ``drafters`` in order, each only for the rows that those before it left empty.

    All of them observe every committed token, so that none falls behind while another drafts.
    """

    def __init__(self, drafters: Items[Drafter]) -> None:
        self.drafters = list(drafters)

    def admit(self, row: Sequence) -> None:
        """A new row."""
        for drafter in self.drafters:
            drafter.admit(row)

    def forget(self, row: Sequence) -> None:
        """The row has ended, or must start anew."""
        for drafter in self.drafters:
            drafter.forget(row)

    def observe(self, row: Sequence, index: int, states: States) -> None:
        """What was committed, whoever drafted it."""
        for drafter in self.drafters:
            drafter.observe(row, index, states)

    def depth_for(self, row: Sequence) -> int:
        """As deep as the deepest goes."""
        return max(drafter.depth_for(row) for drafter in self.drafters)

    def num_final(self, row: Sequence) -> int:
        """What all of them have."""
        return min(drafter.num_final(row) for drafter in self.drafters)

    def draft(self, rows: list[Sequence], shapes: list[Shape]) -> list[Draft]:
        """One tree a row, from the first drafter that makes one."""
        drafts = [Draft() for _ in rows]
        for drafter in self.drafters:
            limits = [shape.cut(drafter.depth_for(row)) for row, shape in zip(rows, shapes, strict=True)]
            asked = [b for b, limit in enumerate(limits) if limit.depth and not len(drafts[b])]
            if asked:
                made = drafter.draft([rows[b] for b in asked], [limits[b] for b in asked])
                for b, draft in zip(asked, made, strict=True):
                    drafts[b] = draft
        return drafts

    @property
    def caches(self) -> list[KVCache]:
        """Those of all of them."""
        return [cache for drafter in self.drafters for cache in drafter.caches]

    @property
    def num_bytes(self) -> int:
        """Memory of all of them."""
        return sum(drafter.num_bytes for drafter in self.drafters)
