"""Answer: one request's pieces as they come, for both kinds of requests; a whole answer is the joined stream."""

from __future__ import annotations

import json
import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from foretell.serving.choices import Choice, Piece, joined
from foretell.serving.errors import APIError, as_api_error
from foretell.serving.fields import SamplingFields
from foretell.serving.service import Ask, Service
from foretell.serving.usage import usage_of

_log = logging.getLogger("foretell.serving")


class Answer(ABC):
    """``ask`` of ``service``, answered in the form of ``request``. Whole or streamed, it is made of the same pieces.

    ``since``: when the request came, by ``time.perf_counter``.
    """

    id_prefix: str
    whole_object: str
    chunk_object: str
    since: float

    def __init__(self, service: Service, request: SamplingFields, ask: Ask, num_top: int | None) -> None:
        self.service = service
        self.request = request
        self.ask = ask
        self.id = f"{self.id_prefix}-{secrets.token_hex(12)}"
        self.created = int(time.time())
        trunk = service.engine.model.trunk
        eos = frozenset() if request.ignore_eos else trunk.eos_token_ids
        wants_details = request.wants_details
        self.choices = [
            Choice(
                index,
                service.token_bytes,
                eos,
                num_top,
                self.id_prefix == "chatcmpl",
                request.return_token_ids,
                wants_details,
            )
            for index in range(ask.num_rows)
        ]

    async def pieces(self) -> AsyncIterator[Piece]:
        """What comes, of all choices."""
        async with aclosing(self.service.run(self.ask, self.since)) as chunks:  # type: ignore[type-var]
            async for index, chunk in chunks:
                yield self.choices[index].piece(chunk)

    async def whole(self) -> dict[str, Any]:
        """The answer in one piece."""
        pieces: list[list[Piece]] = [[] for _ in self.choices]
        async with aclosing(self.pieces()) as found:  # type: ignore[type-var]
            async for piece in found:
                pieces[piece.index].append(piece)
        wholes = [joined(of_choice) for of_choice in pieces]
        return self._envelope(self.whole_object) | {
            "choices": [self.whole_choice(whole) for whole in wholes],
            "usage": self._usage(wholes),
        }

    async def events(self) -> AsyncGenerator[str, None]:
        """Server-sent events. A fault after the first one is an event too; before it, it is raised."""
        ends: list[Piece] = []
        has_begun = False
        try:
            async with aclosing(self.pieces()) as found:  # type: ignore[type-var]
                async for piece in found:
                    for choice in self.chunk_choices(piece):
                        has_begun = True
                        yield self._event([choice])
                    if piece.completion is not None:
                        ends.append(piece)
            if self.request.wants_usage:
                yield self._event([], self._usage(ends))
        except Exception as error:
            if not has_begun:
                raise
            if not isinstance(error, APIError):
                _log.exception("an answer broke off")
            yield _data(as_api_error(error).body)
        yield "data: [DONE]\n\n"

    @abstractmethod
    def whole_choice(self, piece: Piece) -> dict[str, Any]:
        """A choice of a whole answer."""

    @abstractmethod
    def chunk_choices(self, piece: Piece) -> list[dict[str, Any]]:
        """Choices of the events that ``piece`` makes; none where it says nothing new."""

    def extras(self, piece: Piece) -> dict[str, Any]:
        """Foretell's own fields of a choice."""
        found: dict[str, Any] = {} if piece.token_ids is None else {"token_ids": piece.token_ids}
        return found if piece.tokens is None else found | {"speculative": {"tokens": piece.tokens}}

    def _usage(self, ends: list[Piece]) -> dict[str, Any]:
        done = [piece.completion for piece in ends if piece.completion is not None]
        return usage_of(self.ask.prompts, done, self.request.wants_details)

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.service.settings.name}

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> str:
        values = self._envelope(self.chunk_object) | {"choices": choices}
        return _data(values | {"usage": usage} if self.request.wants_usage else values)


def _data(values: dict[str, Any]) -> str:
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    for end in "\x85\u2028\u2029":  # some clients take them for the end of a line
        text = text.replace(end, f"\\u{ord(end):04x}")
    return f"data: {text}\n\n"
