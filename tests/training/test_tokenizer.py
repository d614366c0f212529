"""Tokenizers for trunks from scratch: nothing is lost, and the same texts give the same tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.errors import CheckpointError, DataError, UsageError
from foretell.training.corpus_texts import corpus_texts
from foretell.training.recipe import DataConfig, TokenizerConfig
from foretell.training.tokenizer import make_tokenizer

TEXTS = ["def fib(n):\n    return n\n" * 20, "naïve café ☕ 🙂 漢字\r\n\t" * 10, ""]
BPE = TokenizerConfig("bpe", vocab_size=290)
BPE_TOKENIZER = make_tokenizer(BPE, TEXTS)
BYTE_TOKENIZER = make_tokenizer(TokenizerConfig("bytes"), [])


@settings(max_examples=40, deadline=None)
@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    for tokenizer in (BPE_TOKENIZER, BYTE_TOKENIZER):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_bytes() -> None:
    assert len(BYTE_TOKENIZER("🙂")["input_ids"]) == 4
    assert (len(BYTE_TOKENIZER), BYTE_TOKENIZER.eos_token_id, BYTE_TOKENIZER.pad_token_id) == (258, 256, 257)
    every_byte = [BYTE_TOKENIZER(chr(i))["input_ids"] for i in range(128)]
    assert all(len(ids) == 1 for ids in every_byte) and len({ids[0] for ids in every_byte}) == 128


def test_bpe_is_deterministic_and_learns_merges() -> None:
    again = make_tokenizer(BPE, iter(TEXTS))
    assert again.backend_tokenizer.to_str() == BPE_TOKENIZER.backend_tokenizer.to_str()
    assert len(BPE_TOKENIZER) == 290
    assert (BPE_TOKENIZER.eos_token, BPE_TOKENIZER.pad_token) == ("<eos>", "<pad>")
    assert len(BPE_TOKENIZER("return")["input_ids"]) < 6
    other = make_tokenizer(BPE, ["other words altogether " * 20])
    assert other.backend_tokenizer.to_str() != BPE_TOKENIZER.backend_tokenizer.to_str()


@pytest.mark.parametrize("config", [TokenizerConfig("bpe", 300, chat=True), TokenizerConfig("bytes", chat=True)])
def test_chat(config: TokenizerConfig) -> None:
    tokenizer = make_tokenizer(config, TEXTS)
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "é"}], add_generation_prompt=True)["input_ids"]
    assert tokenizer.decode(ids) == "<|im_start|>user\né<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.eos_token_id in ids
    assert tokenizer.tokenize("<|im_start|>") == ["<|im_start|>"]


def test_folder(tmp_path: Path) -> None:
    BPE_TOKENIZER.save_pretrained(tmp_path / "t")
    loaded = make_tokenizer(TokenizerConfig("folder", folder=str(tmp_path / "t")), [])
    assert loaded("def 🙂")["input_ids"] == BPE_TOKENIZER("def 🙂")["input_ids"]
    assert loaded.eos_token_id == BPE_TOKENIZER.eos_token_id
    with pytest.raises(UsageError, match=r"folder is '.*nowhere'; allowed: a folder with a tokenizer"):
        make_tokenizer(TokenizerConfig("folder", folder=str(tmp_path / "nowhere")), [])
    (tmp_path / "t" / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match="the tokenizer cannot be loaded") as caught:
        make_tokenizer(TokenizerConfig("folder", folder=str(tmp_path / "t")), [])
    assert "\n" not in str(caught.value)


def test_nothing_to_train_on() -> None:
    with pytest.raises(DataError, match="no text to train a tokenizer on"):
        make_tokenizer(BPE, [""])
    with pytest.raises(UsageError, match="vocab_size is 100; allowed: 260 or more"):
        make_tokenizer(TokenizerConfig("bpe", vocab_size=100), TEXTS)


# Texts to train it on


def write(path: Path, *records: Any) -> str:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return str(path)


def test_held_out_documents_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *({"text": str(i)} for i in range(10)))
    assert list(corpus_texts(DataConfig(files=(path,), held_out=0.2))) == ["0", "1", "2", "3", "5", "6", "7", "8"]
    assert list(corpus_texts(DataConfig(files=(path,), held_out=0.02))) == [str(i) for i in range(9)]
    assert list(corpus_texts(DataConfig(files=(path,), held_out=0.0, max_documents=3))) == ["0", "1", "2"]
    other = write(tmp_path / "b.jsonl", {"text": "x"})
    assert len(list(corpus_texts(DataConfig(files=(path,), held_out_files=(other,))))) == 10
    assert list(corpus_texts(DataConfig(files=(path,), held_out=0.0), max_bytes=4)) == ["0", "1", "2", "3"]


def test_texts_of_every_kind_of_record(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    path = write(tmp_path / "a.jsonl", {"messages": chat}, {"prompt": "c", "completion": "d"}, {"body": "e"})
    (tmp_path / "f.py").write_text("f")
    config = DataConfig(files=(path,), texts=(str(tmp_path),), text_field="body", held_out=0)
    assert list(corpus_texts(config)) == ["a\nb", "c\nd", "e", "f"]
    for record, message in (({"token_ids": [1]}, "token ids of another"), ({"text": "a"}, 'no text: needs .* "body"')):
        with pytest.raises(DataError, match=rf"a\.jsonl:2: h.*{message}"):
            list(
                corpus_texts(
                    DataConfig(files=(write(Path(path), {"body": "a"}, record),), text_field="body", held_out=0)
                )
            )
