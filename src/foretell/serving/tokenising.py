"""Text to token ids and back, as requests would see them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from foretell.models.chat import chat_token_ids, has_template, text_token_ids
from foretell.serving.chat_request import Message
from foretell.serving.errors import APIError
from foretell.serving.fields import Fields, Name, refusal
from foretell.serving.service import Service


class TokeniseRequest(Fields):
    """``prompt``, or ``messages`` through the chat template."""

    model: Name | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Field(max_length=4096, fail_fast=True)] | None = None

    @model_validator(mode="after")
    def _one(self) -> TokeniseRequest:
        if (self.prompt is None) == (self.messages is None):
            raise refusal("prompt", "give either prompt or messages")
        return self


class DetokeniseRequest(Fields):
    """``tokens``: ids."""

    model: Name | None = None
    tokens: Annotated[list[Annotated[int, Field(ge=0)]], Field(fail_fast=True)]


def tokenised(service: Service, request: TokeniseRequest) -> dict[str, Any]:
    """Ids, their number, and what the window holds. Raises APIError."""
    tokenizer = _tokenizer(service)
    if request.messages is None:
        token_ids = text_token_ids(tokenizer, request.prompt or "", "prompt")
    elif has_template(tokenizer):
        token_ids = chat_token_ids(tokenizer, [message.rendered() for message in request.messages])
    else:
        raise APIError(400, "messages: this model has no chat template; give prompt", "messages", "no_template")
    return {"tokens": token_ids, "count": len(token_ids), "max_model_len": service.engine.max_length}


def detokenised(service: Service, request: DetokeniseRequest) -> dict[str, Any]:
    """Text, special tokens included. Raises APIError."""
    size = service.engine.model.trunk.vocab_size
    if bad := [token_id for token_id in request.tokens if token_id >= size]:
        raise APIError(400, f"tokens: {bad[0]} is outside the vocabulary of {size}", "tokens", "invalid_value")
    return {"prompt": _tokenizer(service).decode(request.tokens)}


def _tokenizer(service: Service) -> Any:
    tokenizer = service.engine.model.trunk.tokenizer
    if tokenizer is None:
        raise APIError(
            400, "this model folder has no tokenizer; send token ids to /v1/completions", None, "no_tokenizer"
        )
    return tokenizer
