"""Prompts of every form (text, token ids, chat messages) to token ids, with one clear error for anything else."""

from __future__ import annotations

import operator
from typing import Any

from foretell.errors import UsageError
from foretell.models.chat import chat_token_ids, has_template, text_token_ids, too_long
from foretell.models.trunk import Trunk
from foretell.types import Prompt

_FORMS = "give text, a list of token ids, or a list of chat messages ({'role': ..., 'content': ...})"


def encode_prompt(prompt: Prompt, trunk: Trunk, name: str = "the prompt") -> list[int]:
    """Token ids of a prompt that fits the trunk's vocabulary and leaves room for a token in its window.

    Text gets the tokenizer's special tokens; chat messages get those of the template alone. ``name`` is for errors:
    UsageError, or ContextLengthError for a prompt that is too long.
    """
    if isinstance(prompt, str):
        token_ids = _encode_text(prompt, trunk, name)
    elif hasattr(prompt, "__len__") and hasattr(prompt, "__iter__") and not isinstance(prompt, (dict, bytes)):
        items: list[Any] = list(prompt)
        is_chat = bool(items) and all(isinstance(item, dict) for item in items)
        token_ids = _encode_chat(items, trunk, name) if is_chat else _token_ids(items, name)
    else:
        raise UsageError(f"{name} is {prompt!r}; {_FORMS}")
    if not token_ids:
        raise UsageError(f"{name} is empty; give at least one token")
    if bad := [t for t in token_ids if not 0 <= t < trunk.vocab_size]:
        raise UsageError(f"{name}: token id {bad[0]} is outside the vocabulary of {trunk.vocab_size}")
    if len(token_ids) >= trunk.max_positions:
        raise too_long(name, len(token_ids), trunk.max_positions)
    return token_ids


def _encode_text(text: str, trunk: Trunk, name: str) -> list[int]:
    return text_token_ids(_tokenizer(trunk), text, name, trunk.max_positions)


def _token_ids(items: list[Any], name: str) -> list[int]:
    if any(isinstance(item, (str, bool)) for item in items):
        raise UsageError(
            f"{name} is a list with {next(i for i in items if isinstance(i, (str, bool)))!r} in it; {_FORMS}"
        )
    try:
        return [operator.index(item) for item in items]
    except TypeError as error:
        raise UsageError(f"{name}: {error}; {_FORMS}") from error


def _encode_chat(messages: list[dict[str, Any]], trunk: Trunk, name: str) -> list[int]:
    tokenizer = _tokenizer(trunk)
    if not has_template(tokenizer):
        raise UsageError(f"{name}: this model has no chat template; give the prompt as text or token ids")
    for message in messages:
        if not isinstance(message.get("role"), str) or not isinstance(message.get("content"), str):
            raise UsageError(f"{name}: a chat message needs text for 'role' and 'content', got {message!r}")
    try:
        return chat_token_ids(tokenizer, messages, most=trunk.max_positions)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error


def _tokenizer(trunk: Trunk) -> Any:
    if trunk.tokenizer is None:
        raise UsageError("this model folder has no tokenizer; give prompts as lists of token ids")
    return trunk.tokenizer
