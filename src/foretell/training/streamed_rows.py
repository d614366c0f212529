"""Rows made on the fly from a corpus that does not fit: read, tokenised and packed while training goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from foretell.training.documents import Document
from foretell.training.packing import Row, packed_rows


@dataclass
class StreamedRows:
    """The rows of ``pack``, in the same order, anew at every iteration.

    ``shuffle_buffer``: the next row is drawn from so many read ahead, under ``seed`` and ``epoch``; 0 = file order.
    Each process of a run reads them all, so that all agree on what row r is; accelerate deals them out.
    """

    documents: Callable[[], Iterable[Document]]
    max_length: int
    packing: bool = True
    shuffle_buffer: int = 0
    seed: int = 0
    epoch: int = 0
    key: str = ""

    def set_epoch(self, epoch: int) -> None:
        """Another order for the next pass, where there is a shuffle buffer."""
        self.epoch = epoch

    def fingerprint(self) -> str:
        """Hash of files, settings and tokenizer (not of the rows, which nobody has read yet)."""
        return self.key

    def __iter__(self) -> Iterator[Row]:
        return self._shuffled() if self.shuffle_buffer else self._rows()

    def _rows(self) -> Iterator[Row]:
        return packed_rows(self.documents(), self.max_length, self.packing)

    def _shuffled(self) -> Iterator[Row]:
        import datasets

        stream = datasets.IterableDataset.from_generator(self._rows)
        stream = stream.shuffle(seed=self.seed, buffer_size=self.shuffle_buffer)
        stream.set_epoch(self.epoch)
        return iter(stream)
