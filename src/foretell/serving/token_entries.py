"""Tokens of an answer as clients see them: log-probabilities in both of OpenAI's shapes, and who guessed each.

Log-probabilities are natural, of the model's raw distribution: before temperature, filters, penalties and grammar. EOS
is not listed: it is no part of the text.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence
from typing import Any

from foretell.serving.token_bytes import TokenBytes
from foretell.types import Origin, TokenLogprob

_LEAST = -9999.0
"""What OpenAI writes for a token that cannot come; JSON has no infinity."""


def chat_logprobs(entries: Sequence[TokenLogprob], num_top: int, tokens: TokenBytes) -> list[dict[str, Any]]:
    """Entries of ``logprobs.content``."""
    return [
        _entry(entry.token_id, entry.logprob, tokens)
        | {"top_logprobs": [_entry(*top, tokens) for top in entry.top[:num_top]]}
        for entry in entries
    ]


class TextLogprobs:
    """The older shape, which says where in the text each token begins; kept from chunk to chunk."""

    def __init__(self, num_top: int, tokens: TokenBytes) -> None:
        self._num_top = num_top
        self._tokens = tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def take(self, token_ids: Sequence[int], entries: Sequence[TokenLogprob | None]) -> dict[str, Any]:
        """The next tokens; an entry is None for the first token of a prompt, which nothing stands before."""
        offsets, tops = [], []
        for token_id, entry in zip(token_ids, entries, strict=True):
            offsets.append(self._offset)
            # A character counts with the token of its last byte.
            self._offset += len(self._decoder.decode(self._tokens.of(token_id)))
            tops.append(
                None
                if entry is None or not self._num_top
                else {self._tokens.name(top): _finite(value) for top, value in entry.top[: self._num_top]}
            )
        return {
            "tokens": [self._tokens.name(token_id) for token_id in token_ids],
            "token_logprobs": [None if entry is None else _finite(entry.logprob) for entry in entries],
            "top_logprobs": tops if self._num_top else None,
            "text_offset": offsets,
        }


class Origins:
    """Who guessed each token: the trunk (recovered, bonus) or the drafter (accepted), and how deep the guess was."""

    def __init__(self, tokens: TokenBytes) -> None:
        self._tokens = tokens
        self._depth = 0

    def take(
        self, token_ids: Sequence[int], origins: Sequence[Origin], entries: Sequence[TokenLogprob]
    ) -> list[dict[str, Any]]:
        """``depth``: 1 and more of an accepted token, 0 of the trunk's own; ``probability``: what the trunk gave it."""
        found = []
        for token_id, origin, entry in zip(token_ids, origins, entries, strict=True):
            self._depth = self._depth + 1 if origin == "accepted" else 0
            found.append(
                {
                    "id": token_id,
                    "bytes": list(self._tokens.of(token_id)),
                    "origin": origin,
                    "depth": self._depth,
                    "probability": math.exp(entry.logprob),
                }
            )
        return found


def _entry(token_id: int, logprob: float, tokens: TokenBytes) -> dict[str, Any]:
    return {"token": tokens.name(token_id), "logprob": _finite(logprob), "bytes": list(tokens.of(token_id))}


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST)
