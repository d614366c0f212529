"""From files and folders to records, in a fixed order; what cannot be read is named with its file and line."""

from __future__ import annotations

import glob
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretell.errors import DataError
from foretell.training.jsonl import read_jsonl
from foretell.training.recipe import DataConfig


@dataclass(frozen=True)
class Record:
    """What stands in one place: fields by name. ``line`` counts a JSONL file's lines or a parquet file's rows from 1.

    ``undecodable``: the text holds bytes that are not UTF-8, read as replacement characters.
    """

    values: dict[str, Any]
    file: str
    line: int | None = None
    undecodable: bool = False

    @property
    def place(self) -> tuple[str, int | None]:
        """(file, line), as DataError takes them."""
        return self.file, self.line


def check_files(files: Sequence[str]) -> None:
    """Raise DataError for the first file that is missing or of an unknown kind, before any is read."""
    for file in files:
        if Path(file).is_dir():
            raise DataError("is a folder; name its files here, or give it under texts", file)
        if not Path(file).is_file():
            raise DataError("no such file; give the path of a data file, or a folder under texts", file)
        _reader(file)


def check_sources(config: DataConfig) -> None:
    """``check_files`` of all that a recipe names, and of its folders and globs: one file at least in each."""
    check_files([*config.files, *config.held_out_files])
    for _ in text_files(config):
        pass


def file_records(files: Sequence[str], text_field: str = "text") -> Iterator[Record]:
    """Every record of JSONL (.jsonl, .json, plain or .gz) and .parquet files; a .txt file is one record.

    Raises DataError for a file that is broken, or has no record.
    """
    check_files(files)
    for file in files:
        empty = True
        for record in _reader(file)(file, text_field):
            empty = False
            yield record
        if empty:
            raise DataError("no documents found in this file; take it out of the recipe", file)


def text_records(config: DataConfig) -> Iterator[Record]:
    """Every file of ``texts`` as one text. Source trees hold other encodings too: what is not UTF-8 is replaced."""
    for file in text_files(config):
        text, undecodable = _decoded(file.read_bytes())
        yield Record({config.text_field: text}, str(file), None, undecodable)


def text_files(config: DataConfig) -> Iterator[Path]:
    """Files of the folders and globs in ``texts``, sorted within each; raises DataError where one holds none."""
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


def _jsonl(file: str, text_field: str) -> Iterator[Record]:
    for number, values in read_jsonl(file):
        yield Record(values, file, number)


def _text(file: str, text_field: str) -> Iterator[Record]:
    data = Path(file).read_bytes()
    text, undecodable = _decoded(data)
    if undecodable:
        raise DataError("not UTF-8; save it as UTF-8", file)
    if text:
        yield Record({text_field: text}, file)


def _parquet(file: str, text_field: str) -> Iterator[Record]:
    # datasets' own reader underneath: load_dataset would take the name for a glob, and keep a cache elsewhere.
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=256):
                for values in batch.to_pylist():
                    number += 1
                    yield Record(_without_nulls(values), file, number)
    except (ValueError, OSError) as error:  # pyarrow's own errors are kinds of these
        line = " ".join(str(error).split())[:200]
        raise DataError(f"not a readable parquet file ({line}); write it again", file, number + 1) from error


_READERS: dict[str, Callable[[str, str], Iterator[Record]]] = {
    ".jsonl": _jsonl,
    ".jsonl.gz": _jsonl,
    ".json": _jsonl,
    ".json.gz": _jsonl,
    ".parquet": _parquet,
    ".txt": _text,
}


def _reader(file: str) -> Callable[[str, str], Iterator[Record]]:
    for suffix, reader in _READERS.items():
        if file.endswith(suffix):
            return reader
    raise DataError(f"unknown kind of file; allowed: {', '.join(_READERS)}, or a folder under texts", file)


def _decoded(data: bytes) -> tuple[str, bool]:
    """(text with ``\\n`` line ends, True where bytes had to be replaced)."""
    try:
        text, undecodable = data.decode(), False
    except UnicodeDecodeError:
        text, undecodable = data.decode(errors="replace"), True
    return text.replace("\r\n", "\n").replace("\r", "\n"), undecodable


def _without_nulls(value: Any) -> Any:
    """A table has every column in every row, and a struct every field; null stands for one that is not there."""
    if isinstance(value, dict):
        return {name: _without_nulls(v) for name, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value
