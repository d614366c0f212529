"""Rows in memory, on disk and streamed are the same rows in the same order."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from foretell.errors import DataError
from foretell.training.cached_rows import CachedRows
from foretell.training.data import RunData, read_data
from foretell.training.packing import Row
from foretell.training.recipe import DataConfig
from foretell.training.streamed_rows import StreamedRows
from foretell.training.tokenizer import byte_tokenizer
from tests.fixtures import VOCAB_SIZE

TRUNK: Any = SimpleNamespace(tokenizer=byte_tokenizer(), vocab_size=VOCAB_SIZE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    lengths = torch.randint(1, 40, (500,), generator=torch.Generator().manual_seed(0)).tolist()
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": chr(97 + i % 26) * n}) + "\n" for i, n in enumerate(lengths)))
    return file


def read(path: Path, storage: Any, cache: Path | None = None, **config: Any) -> RunData:
    settings = {"max_length": 32, "held_out": 0.1} | config
    return read_data(DataConfig(files=(str(path),), storage=storage, **settings), TRUNK, cache or path.parent / "cache")


def rows_of(data: RunData) -> list[Row]:
    rows = data.rows
    return list(rows) if isinstance(rows, StreamedRows) else [rows.row(r) for r in range(len(rows))]


def same(one: list[Row], other: list[Row]) -> bool:
    return len(one) == len(other) and all(
        a.keys() == b.keys() and all(torch.equal(a[n], b[n]) and a[n].dtype == b[n].dtype for n in a)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("packing", [True, False])
@pytest.mark.parametrize("storage", ["cached", "streaming"])
def test_the_same_rows_everywhere(path: Path, storage: str, packing: bool) -> None:
    memory, other = read(path, "memory", packing=packing), read(path, storage, packing=packing)
    rows = rows_of(memory)
    assert len(rows) > 100
    assert same(rows, rows_of(other))
    assert same(rows, rows_of(other))  # and once more
    assert memory.held_out == other.held_out and len(memory.held_out) == 50
    assert [d.num_bytes for d in memory.held_out] == [d.num_bytes for d in other.held_out]
    assert (memory.packed is not None, other.packed, other.streams) == (True, None, storage == "streaming")
    if storage == "cached":
        assert memory.counts == other.counts


# On disk


def test_cached_rows_are_used_again_and_made_anew_when_something_changed(path: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    def stamps() -> dict[str, int]:
        return {str(f): f.stat().st_mtime_ns for f in cache.rglob("*.arrow")}

    first = read(path, "cached")
    made = stamps()
    again = read(path, "cached")
    assert stamps() == made and again.fingerprint == first.fingerprint and same(rows_of(first), rows_of(again))
    assert again.counts == first.counts and again.held_out == first.held_out

    for change in ({"max_length": 16}, {"supervise": "answer"}, {"held_out": 0.2}, {"packing": False}):
        other = read(path, "cached", **change)
        assert other.fingerprint != first.fingerprint and len(stamps()) == 1 and stamps().keys() != made.keys()
        assert same(rows_of(other), rows_of(read(path, "memory", **change)))
    read(path, "cached")
    path.write_text(path.read_text().replace('"a', '"b', 1))
    os.utime(path, ns=(1, 1))  # as if copied with an old date
    changed = read(path, "cached")
    assert changed.fingerprint != first.fingerprint and not same(rows_of(first), rows_of(changed))
    assert same(rows_of(changed), rows_of(read(path, "memory")))


def test_another_tokenizer_makes_other_rows(path: Path) -> None:
    first = read(path, "cached")
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{{ messages }}"
    trunk: Any = SimpleNamespace(tokenizer=tokenizer, vocab_size=VOCAB_SIZE)
    config = DataConfig(files=(str(path),), storage="cached", max_length=32, held_out=0.1)
    assert read_data(config, trunk, path.parent / "cache").fingerprint != first.fingerprint


def test_a_broken_line_leaves_no_half_of_a_cache(path: Path, tmp_path: Path) -> None:
    path.write_text(path.read_text() + "{\n")
    with pytest.raises(DataError, match=r"a\.jsonl:501: not valid JSON"):
        read(path, "cached")
    assert not list((tmp_path / "cache").rglob("*"))


def test_cached_rows_are_mapped_from_disk(path: Path) -> None:
    rows = read(path, "cached").rows
    assert isinstance(rows, CachedRows)
    row = rows.row(3)
    assert (row["token_ids"].dtype, row["supervised"].dtype, row["doc_ids"].shape) == (torch.int32, torch.bool, (32,))


# Streamed


def test_a_shuffle_buffer_has_an_order_of_its_own_each_epoch(path: Path) -> None:
    def order(rows: list[Row]) -> list[tuple[int, ...]]:
        return [tuple(row["token_ids"].tolist()) for row in rows]

    plain = order(rows_of(read(path, "streaming")))
    data = read(path, "streaming", shuffle_buffer=20)
    assert isinstance(data.rows, StreamedRows)
    first = order(list(data.rows))
    assert first == order(list(data.rows)) != plain and sorted(first) == sorted(plain)
    data.rows.set_epoch(1)
    second = order(list(data.rows))
    assert second not in (first, plain) and sorted(second) == sorted(plain)


def test_a_stream_counts_what_it_has_read(path: Path) -> None:
    memory, stream = read(path, "memory"), read(path, "streaming")
    assert stream.counts.training.num_documents == 0 and stream.counts.held_out == memory.counts.held_out
    rows_of(stream)
    assert stream.counts == memory.counts


@pytest.mark.parametrize("shuffle_buffer", [0, 16])
def test_a_broken_line_stops_a_stream_with_its_number(path: Path, shuffle_buffer: int) -> None:
    path.write_text(path.read_text() + "{\n")
    data = read(path, "streaming", held_out=0.0, shuffle_buffer=shuffle_buffer)
    with pytest.raises(DataError, match=r"a\.jsonl:501: not valid JSON"):
        rows_of(data)


def test_a_stream_shorter_than_its_held_out_step(path: Path) -> None:
    path.write_text('{"text": "a"}\n{"text": "b"}\n{"text": "c"}\n')
    memory, stream = read(path, "memory", held_out=0.02), read(path, "streaming", held_out=0.02)
    assert memory.held_out == stream.held_out and len(stream.held_out) == 1
    assert same(rows_of(memory), rows_of(stream))
