"""Prompts of requests, checked against the window before anything runs."""

from __future__ import annotations

from foretell.decoding.prompts import encode_prompt
from foretell.errors import ContextLengthError, UsageError
from foretell.models.trunk import Trunk
from foretell.serving.errors import APIError


def checked_prompt(trunk: Trunk, prompt: str | list[int], name: str) -> list[int]:
    """Token ids. Raises APIError for what is empty, outside the vocabulary, or longer than the window."""
    try:
        return encode_prompt(prompt, trunk, name)
    except ContextLengthError as error:
        raise APIError(400, str(error), _param(name), "context_length_exceeded") from error
    except UsageError as error:
        raise APIError(400, str(error), _param(name), "invalid_value") from error


def room(window: int, num_prompt: int, num_asked: int | None) -> int:
    """Tokens an answer may have: as asked, or what is left of the window. Raises APIError where that is less."""
    left = window - num_prompt
    if num_asked is None and left > 0:
        return left
    if num_asked is None or num_asked > left:
        asked = 1 if num_asked is None else num_asked
        raise APIError(
            400,
            f"the prompt has {num_prompt} tokens and max_tokens is {asked}, {num_prompt + asked} together, and the "
            f"window holds {window}; ask for at most {max(0, left)}, or shorten the prompt",
            "max_tokens",
            "context_length_exceeded",
        )
    return num_asked


def _param(name: str) -> str:
    return "messages" if name == "the chat" else "prompt"
