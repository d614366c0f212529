from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import DataError
from foretell.training.data import read_documents
from foretell.training.documents import Document
from foretell.training.draft_vocab import choose_draft_vocab, count_tokens
from foretell.training.held_out import set_apart, split_held_out
from foretell.training.jsonl import read_jsonl, read_prompts
from foretell.training.packing import pack, packed_rows
from foretell.training.recipe import DataConfig
from tests.fixtures import VOCAB_SIZE, byte_tokenizer, encode


def document(first: int, num_tokens: int) -> Document:
    ids = list(range(first, first + num_tokens))
    return Document(ids, [i % 2 == 0 for i in ids])


@given(lengths=st.lists(st.integers(0, 30), max_size=60), max_length=st.integers(1, 12))
def test_packing_keeps_every_token_and_flag(lengths: list[int], max_length: int) -> None:
    """Pieces are whole documents where they fit; rows hold them one after the other, padding behind."""
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    documents = [document(start, length) for start, length in zip(starts, lengths, strict=True)]
    rows = pack(documents, max_length)
    pieces = []
    for ids_T, doc_ids_T, supervised_T in zip(rows.token_ids_RT, rows.doc_ids_RT, rows.supervised_RT, strict=True):
        real = doc_ids_T >= 0
        assert not (real[1:] & ~real[:-1]).any()  # no hole
        assert not supervised_T[~real].any()
        assert set((doc_ids_T[1:] - doc_ids_T[:-1])[real[1:]].tolist()) <= {0, 1}
        for d in range(int(doc_ids_T.max()) + 1):
            mine = doc_ids_T == d
            pieces.append((ids_T[mine].tolist(), supervised_T[mine].tolist()))
    expected = [
        (d.token_ids[i : i + max_length], d.supervised[i : i + max_length])
        for d in documents
        for i in range(0, len(d.token_ids), max_length)
    ]
    assert sorted(pieces) == sorted(expected)
    assert rows.num_tokens == sum(lengths)


def test_packing_fills_the_fullest_row_that_has_room() -> None:
    rows = pack([document(0, 5), document(10, 6), document(20, 2), document(30, 3), document(40, 1)], 8)
    assert rows.token_ids_RT.tolist() == [[0, 1, 2, 3, 4, 30, 31, 32], [10, 11, 12, 13, 14, 15, 20, 21], [40, *[0] * 7]]
    assert rows.doc_ids_RT.tolist() == [[0] * 5 + [1] * 3, [0] * 6 + [1] * 2, [0, *[-1] * 7]]


def test_pieces_of_a_long_document_are_documents_of_their_own() -> None:
    rows = pack([document(0, 11)], 4)
    assert [row.tolist() for row in rows.doc_ids_RT] == [[0] * 4, [0] * 4, [0, 0, 0, -1]]
    rows = pack([document(0, 7), document(20, 1)], 4)
    assert rows.doc_ids_RT.tolist() == [[0] * 4, [0, 0, 0, 1]]


def test_without_packing_each_piece_has_a_row() -> None:
    rows = pack([document(0, 3), document(10, 6), document(20, 1)], 4, packing=False)
    assert rows.token_ids_RT.tolist() == [[0, 1, 2, 0], [10, 11, 12, 13], [14, 15, 0, 0], [20, 0, 0, 0]]
    assert rows.doc_ids_RT.tolist() == [[0, 0, 0, -1], [0] * 4, [0, 0, -1, -1], [0, -1, -1, -1]]


def test_rows_come_out_while_documents_come_in() -> None:
    """A stream reads ahead by the open rows alone, or by rows of 2^20 tokens where the oldest stays open."""
    num_read = 0

    def documents(first: int, size: int) -> Iterator[Document]:
        nonlocal num_read
        yield document(0, first)
        for num_read in range(1, 1000):  # noqa: B007
            yield document(0, size)

    next(packed_rows(documents(8, 8), 8))
    assert num_read == 32
    next(packed_rows(documents(1, 2**14), 2**14))  # nothing fits beside the first
    assert num_read == 64


@given(num=st.integers(0, 200), share=st.just(0.0) | st.floats(1e-3, 0.5))
def test_held_out_is_a_split(num: int, share: float) -> None:
    documents = [document(i, 1) for i in range(num)]
    train, held_out = split_held_out(documents, share)
    assert sorted(d.token_ids[0] for d in train + held_out) == list(range(num))
    assert [d.token_ids[0] for d in train] == sorted(d.token_ids[0] for d in train)
    if num >= 2 and share > 0:
        assert train and held_out
        assert len(held_out) <= max(1, num * share * 1.5)
    else:
        assert not held_out


def test_held_out_takes_every_nth() -> None:
    documents = [document(i, 1) for i in range(25)]
    assert [d.token_ids[0] for d in split_held_out(documents, 0.1)[1]] == [9, 19]
    assert [d.token_ids[0] for d in split_held_out(documents[:5], 0.1)[1]] == [4]


def test_a_stream_holds_out_no_more_than_it_may() -> None:
    held_out: list[int] = []
    assert list(set_apart(range(1, 13), 0.25, held_out, at_most=2)) == [1, 2, 3, 5, 6, 7, 9, 10, 11, 12]
    assert held_out == [4, 8]


def test_draft_vocabulary() -> None:
    rows = pack([Document([1, 2, 2, 5], [True, True, True, False]), Document([2, 3], [True, True])], 8)
    assert count_tokens([rows.row(0)], 7).tolist() == [0, 1, 3, 1, 0, 0, 0]
    counts_V = torch.tensor([0, 5, 1, 9, 0, 3, 2])
    ids, coverage = choose_draft_vocab(counts_V, 3)
    assert (ids.tolist(), coverage) == ([1, 3, 5], pytest.approx(17 / 20))
    ids, coverage = choose_draft_vocab(counts_V, 100)  # never a token that was not seen
    assert (ids.tolist(), coverage) == ([1, 2, 3, 5, 6], 1.0)


# Files

TRUNK: Any = SimpleNamespace(tokenizer=byte_tokenizer(), vocab_size=VOCAB_SIZE)


def write_jsonl(path: Path, *records: Any) -> str:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return str(path)


DISTILLED = {"id": 1, "prompt": "ab", "prompt_token_ids": encode("ab"), "token_ids": encode("cd<eos>"), "text": "cd"}


@pytest.mark.parametrize(("supervise", "flags"), [("answer", [False] * 2 + [True] * 3), ("all", [True] * 5)])
def test_distilled_records(tmp_path: Path, supervise: Any, flags: list[bool]) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", DISTILLED)
    [found] = read_documents(DataConfig(files=(path,), supervise=supervise), TRUNK)
    assert found == Document(encode("abcd<eos>"), flags)


def test_texts_and_their_order(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", {"text": "é"}, DISTILLED, {"text": "z"})
    for name, text in (("b.py", "bb"), ("a.txt", "aaa"), ("c.bin", "no"), ("sub/d.md", "d")):
        (tmp_path / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / name).write_text(text)
    config = DataConfig(files=(path,), texts=(str(tmp_path / "texts"),))
    texts = [encode("é"), encode("abcd<eos>"), encode("z"), encode("aaa"), encode("bb"), encode("d")]
    assert [d.token_ids for d in read_documents(config, TRUNK)] == texts
    few = DataConfig(files=(path,), texts=(str(tmp_path / "texts" / "*"),), max_documents=2, max_text_tokens=3)
    assert [d.token_ids for d in read_documents(few, TRUNK)] == texts[:2] + [encode("aaa")]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"text": "a"}', "", '{"text": "b"'], r"a\.jsonl:3: not valid JSON"),
        (['{"text": "a"}', "[1]"], r"a\.jsonl:2: a list, not a JSON object"),
        (['{"text": "a"}', '{"texts": "b"}'], r'a\.jsonl:2: needs "token_ids" .* or "text" .*it has .texts.'),
        (['{"text": 3}'], r"a\.jsonl:1: needs"),
        (['{"token_ids": [1, 260]}'], r"a\.jsonl:1: token ids must be integers from 0 to 259"),
        (['{"token_ids": [1, -1]}'], r"a\.jsonl:1: token ids must be"),
        (['{"token_ids": ["a"]}'], r"a\.jsonl:1: token ids must be"),
        (['{"token_ids": [1], "prompt_token_ids": null}'], r"a\.jsonl:1: token ids must be"),
        ([""], r"a\.jsonl: no documents found"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, lines: list[str], message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=message):
        read_documents(DataConfig(files=(str(path),)), TRUNK)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl: no such file"):
        read_documents(DataConfig(files=(str(tmp_path / "none.jsonl"),)), TRUNK)
    with pytest.raises(DataError, match=r"nowhere: no files with \.py"):
        read_documents(DataConfig(texts=(str(tmp_path / "nowhere"),)), TRUNK)


def test_texts_need_a_tokenizer(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", DISTILLED, {"text": "a"})
    trunk: Any = SimpleNamespace(tokenizer=None, vocab_size=VOCAB_SIZE)
    with pytest.raises(DataError, match=r"a\.jsonl:2: is text, and .* has no tokenizer"):
        read_documents(DataConfig(files=(path,)), trunk)
    assert len(read_documents(DataConfig(files=(write_jsonl(tmp_path / "a.jsonl", DISTILLED),)), trunk)) == 1


def test_prompts(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hi"}]
    path = write_jsonl(tmp_path / "p.jsonl", {"prompt": "a"}, {"messages": chat, "id": "x"}, {"id": 7, "prompt": "b"})
    assert read_prompts(path) == [
        {"id": "1", "prompt": "a"},
        {"id": "x", "messages": chat},
        {"id": 7, "prompt": "b"},
    ]
    for wrong in (
        {"prompt": ""},
        {"prompt": 3},
        {"messages": []},
        {"messages": "hi"},
        {"messages": [{"role": "user"}]},
    ):
        path = write_jsonl(tmp_path / "p.jsonl", {"prompt": "a"}, wrong)
        with pytest.raises(DataError, match=r"p\.jsonl:2: needs .prompt"):
            read_prompts(path)
    (tmp_path / "p.jsonl").write_text("\n")
    with pytest.raises(DataError, match=r"p\.jsonl: no records"):
        read_prompts(tmp_path / "p.jsonl")


def test_every_prompt_has_an_id_of_its_own(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "p.jsonl", {"prompt": "a", "id": "x"}, {"prompt": "b"}, {"prompt": "c", "id": "x"})
    with pytest.raises(DataError, match=r'p\.jsonl:3: id "x" is that of line 1 too'):
        read_prompts(path)
    path = write_jsonl(tmp_path / "p.jsonl", {"prompt": "a", "id": 2}, {"prompt": "b"})
    with pytest.raises(DataError, match=r'p\.jsonl:2: id "2" is that of line 1 too'):
        read_prompts(path)


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n' + '{"text": "é"}\n'.encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.jsonl:2: not UTF-8 \(.*\); save it as UTF-8"):
        list(read_jsonl(path))


def test_gzip(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    data = gzip.compress('{"text": "é"}\n{"text": "b"}\n'.encode())
    path.write_bytes(data)
    assert list(read_jsonl(path)) == [(1, {"text": "é"}), (2, {"text": "b"})]
    for broken in (b'{"text": "a"}\n', data[:-10], data[:12] + b"xxxx" + data[16:]):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"a\.jsonl\.gz: not a whole gzip file"):
            list(read_jsonl(path))
