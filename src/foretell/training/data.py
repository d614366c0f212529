"""What a run trains on: documents of its files, a part held out, the rest packed into rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from foretell.errors import DataError, UsageError
from foretell.models.trunk import Trunk
from foretell.training import cached_rows
from foretell.training.cached_rows import CachedRows
from foretell.training.counts import DataCounts, PartCounts
from foretell.training.data_key import data_key
from foretell.training.documents import Document, DocumentReader
from foretell.training.held_out import STREAM_AT_MOST, set_apart_by
from foretell.training.packing import PackedRows, Row, pack, packed_rows
from foretell.training.processes import main_first
from foretell.training.recipe import DataConfig
from foretell.training.sources import check_files, file_records, text_records
from foretell.training.streamed_rows import StreamedRows

Progress = Callable[[str, int, int], None]

_SAY_EVERY = 20_000
"""Documents between two lines of progress."""


@dataclass(frozen=True)
class RunData:
    """Rows to train on, documents held out, and what both amount to."""

    rows: PackedRows | CachedRows | StreamedRows
    held_out: list[Document]
    counts: DataCounts

    @property
    def packed(self) -> PackedRows | None:
        """The rows, where they are tensors in memory."""
        return self.rows if isinstance(self.rows, PackedRows) else None

    @property
    def streams(self) -> bool:
        """True where rows can be iterated over and have no number."""
        return isinstance(self.rows, StreamedRows)

    @property
    def fingerprint(self) -> str:
        """Hash of the rows, or of what they are made of."""
        return self.rows.fingerprint()


def document_reader(config: DataConfig, tokenizer: Any, vocab_size: int, from_scratch: bool = False) -> DocumentReader:
    """The reader a recipe asks for. ``from_scratch``: the trunk is untrained, so texts end with EOS by default."""
    append_eos = from_scratch if config.append_eos == "auto" else config.append_eos
    if config.append_eos is True and tokenizer is not None and tokenizer.eos_token_id is None:
        raise UsageError('[data] append_eos is true, and the tokenizer has no EOS token; set it to false or "auto"')
    return DocumentReader(tokenizer, vocab_size, config.supervise, config.text_field, append_eos)


def documents_of(config: DataConfig, reader: DocumentReader) -> Iterator[Document]:
    """Documents of ``files``, then of ``texts``, in a fixed order, as they are read."""
    records = file_records(config.files, config.text_field)
    yield from map(reader.read, islice(records, config.max_documents or None))
    num_tokens = 0
    for record in text_records(config):
        if config.max_text_tokens and num_tokens >= config.max_text_tokens:
            break
        document = reader.read(record)
        num_tokens += len(document.token_ids)
        yield document


def read_documents(config: DataConfig, trunk: Trunk) -> list[Document]:
    """All of ``documents_of`` a loaded trunk; raises DataError where there is none."""
    check_files(config.files)
    documents = list(documents_of(config, document_reader(config, trunk.tokenizer, trunk.vocab_size)))
    if not documents:
        raise _nothing(config)
    return documents


def read_data(
    config: DataConfig,
    trunk: Trunk,
    cache_folder: Path,
    on_progress: Progress | None = None,
    from_scratch: bool = False,
    seed: int = 0,
) -> RunData:
    """Read what a recipe names, and keep its rows as ``config.storage`` says ("cached" ones in ``cache_folder``).

    All three storages give the same rows in the same order; ``seed`` is that of a stream's shuffle buffer. Raises
    DataError, with file and line, for what cannot be read.
    """
    say = on_progress or (lambda stage, done, total: None)
    check_files([*config.files, *config.held_out_files])
    reader = document_reader(config, trunk.tokenizer, trunk.vocab_size, from_scratch)
    if config.storage == "streaming":
        return _streamed(config, reader, seed)
    data = _cached(config, reader, cache_folder, say) if config.storage == "cached" else _packed(config, reader, say)
    if not data.counts.training.num_documents:
        raise _nothing(config)
    _say_what_is_odd(data.counts, say)
    return data


def _packed(config: DataConfig, reader: DocumentReader, say: Progress) -> RunData:
    held_out, counts = list[Document](), DataCounts()
    rows = pack(_training(config, reader, held_out, counts.training, say), config.max_length, config.packing)
    _count_held_out(config, reader, held_out, counts)
    return RunData(rows, held_out, counts)


def _streamed(config: DataConfig, reader: DocumentReader, seed: int) -> RunData:
    counts, held_out = DataCounts(), list[Document]()
    if config.held_out > 0 and not config.held_out_files:
        for _ in set_apart_by(config, documents_of(config, reader), held_out):
            if len(held_out) == STREAM_AT_MOST:
                break
    _count_held_out(config, reader, held_out, counts)

    def documents() -> Iterator[Document]:
        return counts.training.counting(set_apart_by(config, documents_of(config, reader), []))

    key = data_key(config, reader)
    rows = StreamedRows(documents, config.max_length, config.packing, config.shuffle_buffer, seed, key=key)
    return RunData(rows, held_out, counts)


def _cached(config: DataConfig, reader: DocumentReader, cache_folder: Path, say: Progress) -> RunData:
    key = data_key(config, reader)
    folder = cached_rows.folder_of(cache_folder, key)
    with main_first():
        if not folder.is_dir():
            held_out, counts = list[Document](), DataCounts()
            documents = _training(config, reader, held_out, counts.training, say)

            def rows() -> Iterator[Row]:
                yield from packed_rows(documents, config.max_length, config.packing)
                _count_held_out(config, reader, held_out, counts)

            cached_rows.write_rows(folder, rows(), config.max_length, held_out, counts)
            cached_rows.drop_others(cache_folder, folder)
    return RunData(CachedRows(folder, key), *cached_rows.read_rest(folder))


def _training(
    config: DataConfig, reader: DocumentReader, held_out: list[Document], counts: PartCounts, say: Progress
) -> Iterator[Document]:
    """Documents to train on, counted; every n-th goes to ``held_out`` instead."""
    for document in counts.counting(set_apart_by(config, documents_of(config, reader), held_out)):
        yield document
        if counts.num_documents % _SAY_EVERY == 0:
            say(f"{counts.num_documents:,} documents read, {counts.num_tokens:,} tokens", 1, 1)


def _count_held_out(config: DataConfig, reader: DocumentReader, held_out: list[Document], counts: DataCounts) -> None:
    held_out.extend(map(reader.read, file_records(config.held_out_files, config.text_field)))
    for document in held_out:
        counts.held_out.add(document)


def _say_what_is_odd(counts: DataCounts, say: Progress) -> None:
    if num := counts.training.num_unsupervised_documents:
        say(f"{num:,} of {counts.training.num_documents:,} documents have no token to learn", 1, 1)
    if num := counts.training.num_undecodable_documents:
        say(f"{num:,} texts hold bytes that are not UTF-8; these are read as replacement characters", 1, 1)


def _nothing(config: DataConfig) -> DataError:
    return DataError("no documents found; check files and texts of the recipe", ", ".join(config.files + config.texts))
