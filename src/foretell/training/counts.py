"""What a run's data amounts to: documents, tokens, targets and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from foretell.training.documents import Document


@dataclass
class PartCounts:
    """One part of the data, before it is cut into rows.

    ``num_supervised``: tokens that are targets; ``num_unsupervised_documents``: documents without one, from which
    nothing is learnt. ``num_bytes``: UTF-8 bytes of the text, without special tokens: what bits per byte divide by.
    ``num_undecodable_documents``: texts with bytes that are not UTF-8, read as replacement characters.
    """

    num_documents: int = 0
    num_tokens: int = 0
    num_supervised: int = 0
    num_bytes: int = 0
    num_unsupervised_documents: int = 0
    num_undecodable_documents: int = 0

    def add(self, document: Document) -> None:
        """Count one document."""
        num_supervised = sum(document.supervised)
        self.num_documents += 1
        self.num_tokens += len(document.token_ids)
        self.num_supervised += num_supervised
        self.num_bytes += document.num_bytes
        self.num_unsupervised_documents += not num_supervised
        self.num_undecodable_documents += document.undecodable

    def counting(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The same documents, counted as they pass."""
        for document in documents:
            self.add(document)
            yield document


@dataclass
class DataCounts:
    """Both parts. Of a streamed corpus ``training`` holds what has been read so far, over all passes."""

    training: PartCounts = field(default_factory=PartCounts)
    held_out: PartCounts = field(default_factory=PartCounts)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> DataCounts:
        """What ``as_dict`` gave."""
        return cls(PartCounts(**values["training"]), PartCounts(**values["held_out"]))
