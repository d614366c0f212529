"""POST /v1/completions: prompts to asks, pieces to OpenAI's text completions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from foretell.serving.answer import Answer
from foretell.serving.choices import Piece
from foretell.serving.errors import APIError
from foretell.serving.prompts import checked_prompt, room
from foretell.serving.sampling import depth_of, sampling_params
from foretell.serving.service import Ask, Service
from foretell.serving.text_request import TextRequest


def text_answer(service: Service, request: TextRequest, label: str) -> TextAnswer:
    """Raises APIError. Encodes text: call it in a thread."""
    trunk = service.engine.model.trunk
    service.admit(len(request.prompts) * request.n)  # before anything is made for each of them
    given = request.prompts
    names = ["the prompt"] if len(given) == 1 else [f"prompt {i}" for i in range(len(given))]
    prompts = [checked_prompt(trunk, prompt, name) for prompt, name in zip(given, names, strict=True)]
    num_asked = 16 if request.max_tokens is None else request.max_tokens
    for prompt in prompts:
        room(service.engine.max_length, len(prompt), max(1, num_asked))
    params = sampling_params(
        request,
        max(1, num_asked),
        request.logprobs,
        trunk.vocab_size,
        prompt_logprobs=request.logprobs if request.echo else None,
    )
    return TextAnswer(service, request, Ask(prompts, params, depth_of(request, service), label), request.logprobs)


class TextAnswer(Answer):
    """Text completions; with ``echo`` the prompt comes first."""

    id_prefix = "cmpl"
    whole_object = chunk_object = "text_completion"
    request: TextRequest

    async def pieces(self) -> AsyncIterator[Piece]:
        """As they come; ``max_tokens`` 0 leaves out the one token that had to be made."""
        async with aclosing(self.service.run(self.ask, self.since)) as chunks:  # type: ignore[type-var]
            begun: set[int] = set()
            async for index, chunk in chunks:
                if self.request.echo and index not in begun:
                    begun.add(index)
                    echo = await asyncio.to_thread(self._echo, index, chunk.prompt_logprobs)
                    if self.request.max_tokens == 0:
                        assert chunk.completion is not None  # its one token is nobody's
                        echo.finish_reason, echo.completion = "length", replace(chunk.completion, token_ids=[])
                    yield echo
                if self.request.max_tokens != 0:
                    yield self.choices[index].piece(chunk)

    def whole_choice(self, piece: Piece) -> dict[str, Any]:
        """A choice of OpenAI's text completions."""
        return {
            "index": piece.index,
            "text": piece.text,
            "logprobs": piece.logprobs,
            "finish_reason": piece.finish_reason,
            **self.extras(piece),
        }

    def chunk_choices(self, piece: Piece) -> list[dict[str, Any]]:
        """The same, of an event."""
        return [] if piece.is_empty else [self.whole_choice(piece)]

    def _echo(self, index: int, logprobs: Any) -> Piece:
        token_ids = self.ask.prompts[index // self.ask.params.n]
        tokenizer = self.service.engine.model.trunk.tokenizer
        if tokenizer is None:
            raise APIError(400, "echo: this model has no tokenizer, so there is no text to repeat", "echo")
        text = tokenizer.decode(token_ids, skip_special_tokens=True)
        return self.choices[index].echo(text, token_ids, logprobs)
