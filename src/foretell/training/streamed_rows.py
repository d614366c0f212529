"""Rows made on the fly from a corpus that does not fit: read, tokenised and packed while training goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from foretell.training.documents import Document
from foretell.training.packing import Row, packed_rows


@dataclass
class StreamedRows:
    """The rows of ``pack``, in the same order, anew at every iteration.

    ``shuffle_buffer``: the next row is drawn from so many read ahead, under ``seed`` and ``epoch``; 0 = file order.
    Row r goes to process r % ``num_processes``; each process reads the whole corpus and keeps its own rows, so that all
    agree on what row r is.
    """

    documents: Callable[[], Iterable[Document]]
    max_length: int
    packing: bool = True
    shuffle_buffer: int = 0
    seed: int = 0
    epoch: int = 0
    process: int = 0
    num_processes: int = 1
    key: str = ""

    def shard(self, process: int, num_processes: int) -> StreamedRows:
        """The rows of one process."""
        return replace(self, process=process, num_processes=num_processes)

    def set_epoch(self, epoch: int) -> None:
        """Another order for the next pass, where there is a shuffle buffer."""
        self.epoch = epoch

    def fingerprint(self) -> str:
        """Hash of files, settings and tokenizer (not of the rows, which nobody has read yet)."""
        return self.key

    def __iter__(self) -> Iterator[Row]:
        rows = self._shuffled() if self.shuffle_buffer else self._rows()
        return islice(rows, self.process, None, self.num_processes)

    def _rows(self) -> Iterator[Row]:
        return packed_rows(self.documents(), self.max_length, self.packing)

    def _shuffled(self) -> Iterator[Row]:
        import datasets

        stream = datasets.IterableDataset.from_generator(self._rows)
        stream = stream.shuffle(seed=self.seed, buffer_size=self.shuffle_buffer)
        stream.set_epoch(self.epoch)
        return iter(stream)
