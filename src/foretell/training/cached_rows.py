"""Packed rows in an Arrow file: memory-mapped, and used again while files and settings are the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import torch

from foretell.checkpoints.files import written_whole
from foretell.training.counts import DataCounts
from foretell.training.documents import Document
from foretell.training.packing import Row

_ROWS, _REST = "rows.arrow", "documents.json"
_TYPES = {"token_ids": torch.int32, "doc_ids": torch.int32, "supervised": torch.bool}


class CachedRows:
    """Rows of a folder that ``write_rows`` made."""

    def __init__(self, folder: Path, key: str) -> None:
        import datasets

        self._rows = datasets.Dataset.from_file(str(folder / _ROWS)).with_format("numpy")
        self._key = key

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, r: int) -> Row:
        """Row ``r``, as ``PackedRows.row`` gives it."""
        row = self._rows[r]
        return {name: torch.tensor(row[name], dtype=dtype) for name, dtype in _TYPES.items()}

    def fingerprint(self) -> str:
        """Hash of the files, settings and tokenizer that the rows were made with."""
        return self._key


def folder_of(cache_folder: Path, key: str) -> Path:
    """Where rows made under ``key`` are kept."""
    return cache_folder / f"rows-{key}"


def write_rows(
    folder: Path, rows: Iterable[Row], max_length: int, held_out: list[Document], counts: DataCounts
) -> None:
    """Write rows as they come, then ``held_out`` and ``counts``, which may fill meanwhile. Whole or not at all."""
    import datasets
    from datasets.arrow_writer import ArrowWriter

    features = datasets.Features(
        {
            name: datasets.List(datasets.Value(str(dtype).removeprefix("torch.")), length=max_length)
            for name, dtype in _TYPES.items()
        }
    )
    with written_whole(folder) as fresh:
        with ArrowWriter(features=features, path=str(fresh / _ROWS)) as writer:
            for row in rows:
                writer.write({name: tensor.numpy() for name, tensor in row.items()})
            writer.finalize()
        rest = {
            "counts": counts.as_dict(),
            "held_out": [{**asdict(d), "supervised": list(map(int, d.supervised))} for d in held_out],
        }
        (fresh / _REST).write_text(json.dumps(rest), encoding="utf-8")


def read_rest(folder: Path) -> tuple[list[Document], DataCounts]:
    """(held-out documents, counts) of a folder that ``write_rows`` made."""
    rest = json.loads((folder / _REST).read_text(encoding="utf-8"))
    held_out = [Document(**{**d, "supervised": list(map(bool, d["supervised"]))}) for d in rest["held_out"]]
    return held_out, DataCounts.from_dict(rest["counts"])


def drop_others(cache_folder: Path, keep: Path) -> None:
    """Remove rows made under other keys: files or settings have changed since."""
    for folder in cache_folder.glob("rows-*"):
        if folder != keep:
            shutil.rmtree(folder, ignore_errors=True)
