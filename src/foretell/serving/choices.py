"""A choice while it comes: its chunks without the end-of-text token, and what was asked for beside the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from foretell.decoding.worker import Chunk
from foretell.serving.token_bytes import TokenBytes
from foretell.serving.token_entries import Origins, TextLogprobs, chat_logprobs
from foretell.types import Completion, TokenLogprob


@dataclass
class Piece:
    """What a chunk adds to a choice. ``logprobs``, ``token_ids`` and ``tokens`` (details): None where not asked for."""

    index: int
    text: str
    finish_reason: str | None = None
    completion: Completion | None = None
    logprobs: Any = None
    token_ids: list[int] | None = None
    tokens: list[dict[str, Any]] | None = None

    @property
    def is_empty(self) -> bool:
        """True where a client would learn nothing."""
        return not (self.text or self.finish_reason or self.logprobs or self.token_ids or self.tokens)


@dataclass
class Choice:
    """One completion. ``num_top``: alternatives a token, None for no log-probabilities; ``is_chat``: in which shape."""

    index: int
    bytes_of: TokenBytes
    eos_token_ids: frozenset[int]
    num_top: int | None
    is_chat: bool
    wants_ids: bool
    wants_details: bool
    _origins: Origins = field(init=False)
    _text_logprobs: TextLogprobs = field(init=False)

    def __post_init__(self) -> None:
        self._origins = Origins(self.bytes_of)
        self._text_logprobs = TextLogprobs(self.num_top or 0, self.bytes_of)

    def echo(self, text: str, token_ids: list[int], logprobs: Sequence[TokenLogprob | None] | None) -> Piece:
        """The prompt, before its completion."""
        entries = self._text_logprobs.take(token_ids, logprobs) if logprobs is not None else None
        return Piece(self.index, text, logprobs=entries, token_ids=token_ids if self.wants_ids else None)

    def piece(self, chunk: Chunk) -> Piece:
        """What ``chunk`` adds."""
        ends = chunk.finish_reason == "stop" and bool(chunk.token_ids) and chunk.token_ids[-1] in self.eos_token_ids
        shown = len(chunk.token_ids) - ends
        piece = Piece(self.index, chunk.text, chunk.finish_reason, chunk.completion)
        entries = (chunk.logprobs or [])[:shown]
        if self.num_top is not None:
            taken = self._text_logprobs.take(chunk.token_ids[:shown], entries) if not self.is_chat else None
            piece.logprobs = taken or {"content": chat_logprobs(entries, self.num_top, self.bytes_of), "refusal": None}
        if self.wants_ids:
            piece.token_ids = chunk.token_ids
        if self.wants_details:
            piece.tokens = self._origins.take(chunk.token_ids[:shown], chunk.origins[:shown], entries)
        return piece


def joined(pieces: Sequence[Piece]) -> Piece:
    """All pieces of a choice as one."""
    last = pieces[-1]
    whole = Piece(last.index, "".join(piece.text for piece in pieces), last.finish_reason, last.completion)
    parts = [piece.logprobs for piece in pieces if piece.logprobs is not None]
    if parts:
        whole.logprobs = {
            name: None if value is None else [entry for part in parts for entry in part[name]]
            for name, value in parts[0].items()
        }
    if last.token_ids is not None:
        whole.token_ids = [token_id for piece in pieces for token_id in piece.token_ids or []]
    if last.tokens is not None:
        whole.tokens = [token for piece in pieces for token in piece.tokens or []]
    return whole
