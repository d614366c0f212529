"""Every kind of file gives the same documents, in a fixed order; what is broken is named by file and number."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from foretell.errors import DataError, UsageError
from foretell.training.counts import PartCounts
from foretell.training.data import read_data, read_documents
from foretell.training.documents import DocumentReader
from foretell.training.recipe import DataConfig
from foretell.training.sources import Record, file_records
from foretell.training.tokenizer import byte_tokenizer
from tests.fixtures import EOS, VOCAB_SIZE, encode

TRUNK: Any = SimpleNamespace(tokenizer=byte_tokenizer(chat=True), vocab_size=VOCAB_SIZE)
RECORDS: list[dict[str, Any]] = [
    {"text": "é🙂"},
    {"token_ids": encode("bc"), "prompt_token_ids": encode("a")},
    {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]},
    {"prompt": "p", "completion": "c"},
]


def as_lines(records: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records).encode()


def write(path: Path, records: list[dict[str, Any]] = RECORDS) -> str:
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(records, schema=SCHEMA), path, row_group_size=2)
    else:
        path.write_bytes(gzip.compress(as_lines(records)) if path.suffix == ".gz" else as_lines(records))
    return str(path)


SCHEMA = pa.schema(
    {
        "text": pa.string(),
        "token_ids": pa.list_(pa.int64()),
        "prompt_token_ids": pa.list_(pa.int64()),
        "messages": pa.list_(pa.struct({"role": pa.string(), "content": pa.string(), "tool_calls": pa.null()})),
        "prompt": pa.string(),
        "completion": pa.string(),
    }
)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json", "a.json.gz", "a.parquet"])
def test_every_kind_gives_the_same_records(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name)
    found = list(file_records([path]))
    assert [r.values for r in found] == RECORDS
    assert [r.place for r in found] == [(path, n) for n in (1, 2, 3, 4)]


def test_files_come_first_and_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "z.txt").write_bytes(b"one\r\ndocument\n\nof two paragraphs")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "b.py").write_text("b")
    (tmp_path / "src" / "a.py").write_text("a")
    files = (str(tmp_path / "z.txt"), write(tmp_path / "b.parquet", [{"text": "p"}, {"text": "q"}]))
    config = DataConfig(files=files, texts=(str(tmp_path / "src"),))
    expected = ["one\ndocument\n\nof two paragraphs", "p", "q", "a", "b"]
    assert [d.token_ids for d in read_documents(config, TRUNK)] == [encode(text) for text in expected]


def test_the_text_stands_in_a_field_of_any_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"body": "x", "text": "y"}])
    assert read_documents(DataConfig(files=(path,), text_field="body"), TRUNK)[0].token_ids == encode("x")


def test_what_is_broken_is_named(tmp_path: Path) -> None:
    whole = Path(write(tmp_path / "a.parquet", [{"text": "abc" * 50}] * 4)).read_bytes()
    columns = [{"id": 1, "body": "x"}]
    parquet.write_table(pa.Table.from_pylist(columns), tmp_path / "c.parquet")
    second_group = parquet.ParquetFile(tmp_path / "a.parquet").metadata.row_group(1).column(0).dictionary_page_offset
    damaged = whole[:second_group] + b"\xff" * 30 + whole[second_group + 30 :]
    for name, data, message in (
        ("a.parquet", whole[:-20], r"a\.parquet:1: not a readable parquet file \("),
        ("a.parquet", b"", r"a\.parquet:1: not a readable parquet file \("),
        ("a.parquet", damaged, r"a\.parquet:\d: not a readable parquet file \("),
        ("c.parquet", None, r"c\.parquet:1: needs .* or \"text\" \(text\); it has 'id', 'body' \(\[data\] text_field"),
        ("a.txt", "é".encode("latin-1"), r"a\.txt: not UTF-8; save it as UTF-8"),
        ("e.txt", b"", r"e\.txt: no documents found in this file"),
        ("e.jsonl", b"\n", r"e\.jsonl: no documents found in this file"),
        (
            "a.csv",
            b"a,b",
            r"a\.csv: unknown kind of file; allowed: \.jsonl, .*\.parquet, \.txt, or a folder under texts",
        ),
        ("t.jsonl", b'{"text": "a"}\n{"text": ["a"]}', r"t\.jsonl:2: needs"),
        ("none.jsonl", None, r"none\.jsonl: no such file"),
    ):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=message) as caught:
            read_documents(DataConfig(files=(str(tmp_path / name),)), TRUNK)
        assert "\n" not in str(caught.value)


def test_a_missing_file_is_named_before_any_is_read(tmp_path: Path) -> None:
    good = write(tmp_path / "a.jsonl", [{"nothing": 1}])
    config = DataConfig(files=(good,), held_out_files=(str(tmp_path / "no.jsonl"),))
    with pytest.raises(DataError, match=r"no\.jsonl: no such file"):
        read_data(config, TRUNK, tmp_path)


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(tmp_path: Path) -> None:
    small: Any = SimpleNamespace(tokenizer=byte_tokenizer(), vocab_size=100)
    config = DataConfig(files=(write(tmp_path / "a.jsonl", [{"text": "é"}]),))
    with pytest.raises(DataError, match=r"a\.jsonl:1: the tokenizer gives token \d+, .* vocabulary ends at 99"):
        read_documents(config, small)


# The end of a text


@pytest.mark.parametrize(
    ("append_eos", "from_scratch", "ends"),
    [("auto", False, False), ("auto", True, True), (True, False, True), (False, True, False)],
)
def test_eos_behind_texts(tmp_path: Path, append_eos: Any, from_scratch: bool, ends: bool) -> None:
    """By default only for a trunk from scratch, so that what a loaded trunk is trained on stays as it was."""
    path = write(tmp_path / "a.jsonl", [{"text": "ab"}, {"text": ""}, {"prompt": "p", "completion": "c"}])
    config = DataConfig(files=(path,), held_out=0, append_eos=append_eos)
    data = read_data(config, TRUNK, tmp_path, from_scratch=from_scratch)
    eos = [EOS] if ends else []
    assert data.packed is not None
    [row_T] = data.packed.token_ids_RT
    assert row_T[: 5 + ends].tolist() == [*encode("ab"), *eos, *encode("pc"), EOS]


def test_eos_needs_a_token(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = None
    trunk: Any = SimpleNamespace(tokenizer=tokenizer, vocab_size=VOCAB_SIZE)
    path = write(tmp_path / "a.jsonl", [{"text": "ab"}])
    with pytest.raises(UsageError, match="append_eos is true, and the tokenizer has no EOS"):
        read_data(DataConfig(files=(path,), append_eos=True), trunk, tmp_path)


# Counts


def test_counts_by_hand(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_bytes(b"\xe9a")  # one replacement character: 3 bytes
    chat = [{"role": "user", "content": "hi"}]
    path = write(tmp_path / "a.jsonl", [*RECORDS, {"messages": chat}])
    held = write(tmp_path / "b.jsonl", [{"text": "🙂🙂"}])
    config = DataConfig(files=(path,), texts=(str(tmp_path / "src"),), held_out_files=(held,), supervise="answer")
    said: list[str] = []
    data = read_data(config, TRUNK, tmp_path, on_progress=lambda stage, done, total: said.append(stage))
    # é🙂 · a + bc · the chat: 8 and 13 tokens of which a<|im_end|> are targets · p + c<|im_end|> · 9 tokens · \ufffd a
    chat_bytes, question_bytes = len("user\nq\nassistant\na\n"), len("user\nhi\n")
    assert data.counts.training == PartCounts(
        num_documents=6,
        num_tokens=6 + 3 + (chat_bytes + 4) + 3 + (question_bytes + 2) + 4,
        num_supervised=6 + 2 + 2 + 2 + 0 + 4,
        num_bytes=6 + 3 + chat_bytes + 2 + question_bytes + 4,
        num_unsupervised_documents=1,
        num_undecodable_documents=1,
    )
    assert data.counts.held_out == PartCounts(1, 8, 8, 8)
    assert data.counts.as_dict()["held_out"]["num_bytes"] == 8
    assert [d.token_ids for d in data.held_out] == [encode("🙂🙂")]
    assert said == ["1 of 6 documents have no token to learn", said[1]] and said[1].startswith("1 texts hold bytes")


def test_a_reader_without_a_tokenizer_takes_token_ids() -> None:
    reader = DocumentReader(None, 300)
    assert reader.read(Record({"token_ids": [1, 2]}, "a")).num_bytes == 0
    for values in RECORDS[2:]:
        with pytest.raises(DataError, match="has no tokenizer"):
            reader.read(Record(values, "a"))
