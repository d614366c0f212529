"""From files to packed rows of token ids, document ids and label flags."""

from __future__ import annotations

import glob
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from foretell.errors import DataError
from foretell.models.trunk import Trunk
from foretell.training.jsonl import read_jsonl
from foretell.training.recipe import DataConfig

_OPEN_ROWS = 32
"""Rows that packing may still put a document into."""


@dataclass(frozen=True)
class Document:
    """One text: its tokens, and which of them are targets."""

    token_ids: list[int]
    supervised: list[bool]


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


def record_document(record: dict[str, Any], trunk: Trunk, supervise: str, where: tuple[str, int]) -> Document:
    """A distilled record (prompt_token_ids and token_ids) or {"text": ...} -> document."""
    answer = record.get("token_ids")
    if isinstance(answer, list):
        prompt = record.get("prompt_token_ids", [])
        if not isinstance(prompt, list) or not all(_is_token(t, trunk.vocab_size) for t in [*prompt, *answer]):
            raise DataError(f"token ids must be integers from 0 to {trunk.vocab_size - 1}, those of the trunk", *where)
        flags = [supervise == "all"] * len(prompt) + [True] * len(answer)
        return Document([*prompt, *answer], flags)
    if isinstance(text := record.get("text"), str):
        return _text_document(text, trunk, *where)
    raise DataError('needs "token_ids" (made by foretell distill) or "text"', *where)


def read_documents(config: DataConfig, trunk: Trunk) -> list[Document]:
    """All documents of a recipe, files first, then texts, in a fixed order."""
    documents = []
    for path in config.files:
        for number, record in read_jsonl(path):
            documents.append(record_document(record, trunk, config.supervise, (path, number)))
    if config.max_documents:
        documents = documents[: config.max_documents]
    num_tokens = 0
    for file in _text_files(config):
        if config.max_text_tokens and num_tokens >= config.max_text_tokens:
            break
        document = _text_document(file.read_text(encoding="utf-8", errors="replace"), trunk, file)
        num_tokens += len(document.token_ids)
        documents.append(document)
    if not documents:
        raise DataError(
            "no documents found; check files and texts of the recipe", ", ".join(config.files + config.texts)
        )
    return documents


def pack(documents: Iterable[Document], max_length: int) -> PackedRows:
    """Fill rows of ``max_length`` tokens; a longer document is cut into pieces, a shorter one is never split."""
    rows: list[list[Document]] = []
    room: list[int] = []
    open_rows: list[int] = []
    for piece in _pieces(documents, max_length):
        size = len(piece.token_ids)
        fitting = [r for r in open_rows if room[r] >= size]
        if fitting:
            row = min(fitting, key=lambda r: room[r])
        else:
            row = len(rows)
            rows.append([])
            room.append(max_length)
            open_rows.append(row)
            if len(open_rows) > _OPEN_ROWS:
                open_rows.remove(min(open_rows, key=lambda r: room[r]))
        rows[row].append(piece)
        room[row] -= size
    packed = PackedRows(
        torch.zeros(len(rows), max_length, dtype=torch.int32),
        torch.full((len(rows), max_length), -1, dtype=torch.int32),
        torch.zeros(len(rows), max_length, dtype=torch.bool),
    )
    for r, pieces in enumerate(rows):
        start = 0
        for d, piece in enumerate(pieces):
            stop = start + len(piece.token_ids)
            packed.token_ids_RT[r, start:stop] = torch.tensor(piece.token_ids, dtype=torch.int32)
            packed.doc_ids_RT[r, start:stop] = d
            packed.supervised_RT[r, start:stop] = torch.tensor(piece.supervised)
            start = stop
    return packed


def split_held_out(documents: list[Document], share: float) -> tuple[list[Document], list[Document]]:
    """(training, held out): every n-th document is held out, so both see the same mix; at least one if share > 0."""
    if share <= 0 or len(documents) < 2:
        return documents, []
    every = max(2, round(1 / share))
    held_out = documents[every - 1 :: every] or documents[-1:]
    if len(documents) < every:
        return documents[:-1], held_out
    return [d for i, d in enumerate(documents) if i % every != every - 1], held_out


def choose_draft_vocab(counts_V: torch.Tensor, size: int) -> tuple[torch.Tensor, float]:
    """The ``size`` most frequent ids, ascending, and the share of all occurrences they cover."""
    size = min(size, int((counts_V > 0).sum()))
    ids = counts_V.topk(size).indices.sort().values
    return ids, float(counts_V[ids].sum() / counts_V.sum())


def _is_token(value: object, vocab_size: int) -> bool:
    return type(value) is int and 0 <= value < vocab_size


def _text_document(text: str, trunk: Trunk, file: str | Path, line: int | None = None) -> Document:
    if trunk.tokenizer is None:
        raise DataError("is text, and the trunk's folder has no tokenizer; give records with token_ids", file, line)
    token_ids = list(trunk.tokenizer(text)["input_ids"])
    return Document(token_ids, [True] * len(token_ids))


def _pieces(documents: Iterable[Document], max_length: int) -> Iterator[Document]:
    for document in documents:
        for start in range(0, len(document.token_ids), max_length):
            stop = start + max_length
            yield Document(document.token_ids[start:stop], document.supervised[start:stop])


def _text_files(config: DataConfig) -> Iterator[Path]:
    for pattern in config.texts:
        pattern = pattern.replace("{stdlib}", sysconfig.get_paths()["stdlib"])
        root = Path(pattern)
        found = (
            sorted(root.rglob("*")) if root.is_dir() else [Path(p) for p in sorted(glob.glob(pattern, recursive=True))]
        )
        files = [
            p for p in found if p.suffix in config.text_suffixes and "site-packages" not in p.parts and p.is_file()
        ]
        if not files:
            raise DataError(f"no files with {', '.join(config.text_suffixes)} found", pattern)
        yield from files
