"""TextStream: pieces that are certain, from tokenizers of every kind, at a cost that does not grow with the text."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from foretell.decoding.text_stream import TextStream
from tests.fixtures import byte_tokenizer

_BYTES = [f"<0x{n:02X}>" for n in range(256)]
_WORDS = ["\u2581", "\u2581a", "\u2581the", "b", "ing", "\u2581\u2581", "\u00e9", "\u2581\u4f60", "\n", "."]


def _sentencepiece() -> PreTrainedTokenizerFast:
    vocab = {token: n for n, token in enumerate([*_BYTES, *_WORDS, "<unk>"])}
    tokenizer = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)  # as Llama 2's
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", clean_up_tokenization_spaces=False)


class _Row:
    """The part of a Sequence that its text needs."""

    def __init__(self, tokenizer: Any, stop: list[str]) -> None:
        self.token_ids: list[int] = []
        self.params = SimpleNamespace(stop=stop)
        self.finish_reason: str | None = None
        self.num_decoded = 0
        self._tokenizer = tokenizer

    def decode(self, token_ids: list[int]) -> str:
        self.num_decoded += len(token_ids)
        return self._tokenizer.decode(token_ids, skip_special_tokens=True)  # type: ignore[no-any-return]

    def text(self) -> str:
        return self._tokenizer.decode(self.token_ids, skip_special_tokens=True)  # type: ignore[no-any-return]


def _random_ids(kind: str, rng: random.Random) -> list[int]:
    if kind == "bytes":
        characters = "".join(rng.choice("a \n\u00e9\u4f60\U0001f600") for _ in range(60))
        return list(byte_tokenizer()(characters, add_special_tokens=False)["input_ids"])
    found: list[int] = []
    for _ in range(40):
        word = len(_BYTES) + rng.randrange(len(_WORDS) + 1)
        found += rng.choice(["\u4f60", "\U0001f600"]).encode() if rng.random() < 0.3 else [word]
    return found


@pytest.mark.parametrize("kind", ["bytes", "sentencepiece"])
@pytest.mark.parametrize("stop", [[], ["qqq", "aa\n"]])
def test_pieces_are_the_ends_of_the_whole_text(kind: str, stop: list[str]) -> None:
    tokenizer = byte_tokenizer() if kind == "bytes" else _sentencepiece()
    for seed in range(40):
        rng = random.Random(seed)
        ids, row = _random_ids(kind, rng), _Row(tokenizer, stop)
        stream, sent = TextStream(row), ""  # type: ignore[arg-type]
        final = tokenizer.decode(ids, skip_special_tokens=True)
        while ids:
            num = rng.randint(1, 4)
            row.token_ids, ids = row.token_ids + ids[:num], ids[num:]
            row.finish_reason = None if ids else "length"
            sent += stream.take()
            whole = row.text().rstrip("\ufffd") if ids else row.text()
            held = max(n for s in ["", *stop] for n in range(max(1, len(s))) if whole.endswith(s[:n])) if ids else 0
            # Bytes of the next character can make an unreadable run of a whole one for a moment.
            certain = whole[: len(whole) - held]
            assert sent == certain or (kind == "sentencepiece" and len(sent) > len(certain)), (seed, len(row.token_ids))
            assert final.startswith(sent), (seed, len(row.token_ids))
        assert sent == final


def test_a_long_text_costs_no_more_a_token() -> None:
    row = _Row(byte_tokenizer(), [])
    stream = TextStream(row)  # type: ignore[arg-type]
    for n in range(2_000):
        row.token_ids.append(64 + n % 26)
        stream.take()
    assert row.num_decoded <= 4 * 2_000
