"""Documents to rows of one length: token ids, document ids within the row, label flags."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

from foretell.training.documents import Document

Row = dict[str, torch.Tensor]
"""(T,) each: "token_ids", "doc_ids" (-1 = padding) and "supervised"."""

_OPEN_ROWS = 32
"""Rows that packing may still put a document into."""

_WAITING_TOKENS = 1 << 20
"""Rows come out in the order they were begun; those behind an open row hold at most so many tokens, then it closes."""


@dataclass
class PackedRows:
    """(R, T) tensors: token ids, document ids within the row (-1 = padding), label flags."""

    token_ids_RT: torch.Tensor
    doc_ids_RT: torch.Tensor
    supervised_RT: torch.Tensor

    def __len__(self) -> int:
        return len(self.token_ids_RT)

    @property
    def num_tokens(self) -> int:
        """Real tokens, padding left out."""
        return int((self.doc_ids_RT >= 0).sum())

    def row(self, r: int) -> Row:
        """Row ``r``."""
        return {
            "token_ids": self.token_ids_RT[r],
            "doc_ids": self.doc_ids_RT[r],
            "supervised": self.supervised_RT[r],
        }

    def fingerprint(self) -> str:
        """Hash of everything in the rows."""
        digest = hashlib.sha256()
        for tensor in (self.token_ids_RT, self.doc_ids_RT, self.supervised_RT):
            digest.update(tensor.numpy().tobytes())
        return digest.hexdigest()[:16]


def pack(documents: Iterable[Document], max_length: int, packing: bool = True) -> PackedRows:
    """All rows of ``packed_rows`` at once."""
    rows = list(packed_rows(documents, max_length, packing))
    if not rows:
        empty = torch.zeros(0, max_length, dtype=torch.int32)
        return PackedRows(empty, empty.clone(), empty.bool())
    return PackedRows(*(torch.stack([row[name] for row in rows]) for name in ("token_ids", "doc_ids", "supervised")))


def packed_rows(documents: Iterable[Document], max_length: int, packing: bool = True) -> Iterator[Row]:
    """Rows of ``max_length`` tokens, made as documents come: best fit among the rows still open.

    A longer document is cut into pieces, which are documents of their own; a shorter one is never split. Without
    ``packing`` every piece has a row to itself.
    """
    for pieces in _filled(_pieces(documents, max_length), max_length, packing):
        token_ids = torch.zeros(max_length, dtype=torch.int32)
        doc_ids = torch.full((max_length,), -1, dtype=torch.int32)
        supervised = torch.zeros(max_length, dtype=torch.bool)
        start = 0
        for d, piece in enumerate(pieces):
            stop = start + len(piece.token_ids)
            token_ids[start:stop] = torch.tensor(piece.token_ids, dtype=torch.int32)
            doc_ids[start:stop] = d
            supervised[start:stop] = torch.tensor(piece.supervised)
            start = stop
        yield {"token_ids": token_ids, "doc_ids": doc_ids, "supervised": supervised}


@dataclass(eq=False)
class _Filling:
    room: int
    pieces: list[Document] = field(default_factory=list)


def _filled(pieces: Iterable[Document], max_length: int, packing: bool) -> Iterator[list[Document]]:
    waiting: deque[_Filling] = deque()  # not out yet, in the order begun
    open_rows: list[_Filling] = []
    most_waiting = max(_OPEN_ROWS, _WAITING_TOKENS // max_length)
    for piece in pieces:
        size = len(piece.token_ids)
        if fitting := [row for row in open_rows if row.room >= size]:
            row = min(fitting, key=lambda row: row.room)
        else:
            row = _Filling(max_length)
            waiting.append(row)
            if packing:
                open_rows.append(row)
            if len(open_rows) > _OPEN_ROWS:
                open_rows.remove(min(open_rows, key=lambda row: row.room))
        row.pieces.append(piece)
        row.room -= size
        if len(waiting) > most_waiting and waiting[0] in open_rows:
            open_rows.remove(waiting[0])
        while waiting and waiting[0] not in open_rows:
            yield waiting.popleft().pieces
    yield from (row.pieces for row in waiting)


def _pieces(documents: Iterable[Document], max_length: int) -> Iterator[Document]:
    for document in documents:
        for start in range(0, len(document.token_ids), max_length):
            stop = start + max_length
            yield Document(document.token_ids[start:stop], document.supervised[start:stop])
