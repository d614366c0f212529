"""Packed rows as a dataset, with the trunk's cached states where there are any."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import torch

from foretell.errors import DataError
from foretell.training.cached_rows import CachedRows
from foretell.training.packing import PackedRows, Row
from foretell.training.states import StateCache
from foretell.training.streamed_rows import StreamedRows


class RowsDataset(torch.utils.data.Dataset[Row]):
    """Rows by number, filled up with empty ones to a multiple of ``batch_rows``.

    So every batch is whole and can be dealt out to any number of processes, and no row counts twice.
    """

    def __init__(self, rows: PackedRows | CachedRows, cache: StateCache | None = None, batch_rows: int = 1) -> None:
        self.rows = rows
        self.cache = cache
        self._size = -(-len(rows) // batch_rows) * batch_rows

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, r: int) -> Row:
        source = min(r, len(self.rows) - 1)
        item = dict(self.rows.row(source))
        if r >= len(self.rows):
            item["doc_ids"] = torch.full_like(item["doc_ids"], -1)
            item["supervised"] = torch.zeros_like(item["supervised"])
        item["row"] = torch.tensor(r)
        if self.cache is not None:
            item |= {"states": self.cache.states_RTD[source], "argmax": self.cache.argmax_RT[source]}
        return item


class RowStream(torch.utils.data.IterableDataset[Row]):
    """Rows of a corpus that is read as it is trained on, pass after pass; accelerate deals them out to processes."""

    def __init__(self, rows: StreamedRows) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Row]:
        number, has_targets = 0, False
        for epoch in count():
            self.rows.set_epoch(epoch)
            for row in self.rows:
                has_targets = has_targets or bool(row["supervised"].any())
                yield {**row, "row": torch.tensor(number)}
                number += 1
            if not has_targets:
                raise DataError("nothing to learn: the stream is at its end, and no token of it is a target", "[data]")


def collate(items: list[Row]) -> Row:
    """Rows -> batch."""
    return {name: torch.stack([item[name] for item in items]) for name in items[0]}
