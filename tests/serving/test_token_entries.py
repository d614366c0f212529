"""Where tokens begin in a text, in the older shape of log-probabilities."""

from __future__ import annotations

from typing import Any

import pytest

from foretell.serving.token_entries import TextLogprobs
from foretell.types import TokenLogprob


class _Bytes:
    """Token ids are places in a list of bytes."""

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens

    def of(self, token_id: int) -> bytes:
        return self.tokens[token_id]

    def name(self, token_id: int) -> str:
        return str(self.tokens[token_id])


@pytest.mark.parametrize(
    ("tokens", "offsets"),
    [
        ([b"ab", b"c", b"d"], [0, 2, 3]),
        (["\u4e16\u754c".encode() + b"\xe4\xbd", b"\xa0", b"a", b"b"], [0, 2, 3, 4]),  # ends inside a character
        ([b"\xffabc", b"d", b"e"], [0, 4, 5]),  # what no character is shows as one
        (["\U0001f600".encode()[:1], "\U0001f600".encode()[1:], b"x"], [0, 0, 1]),
    ],
)
def test_offsets(tokens: list[bytes], offsets: list[int]) -> None:
    found: Any = TextLogprobs(0, _Bytes(tokens))  # type: ignore[arg-type]
    entries = [TokenLogprob(i, -1.0, []) for i in range(len(tokens))]
    taken = [found.take([i], [entries[i]])["text_offset"][0] for i in range(len(tokens))]
    assert taken == offsets
    whole = b"".join(tokens).decode(errors="replace")
    plain = [(at, token.decode()) for at, token in zip(offsets, tokens, strict=True) if token.isalpha()]
    assert all(whole[at:].startswith(token) for at, token in plain)
