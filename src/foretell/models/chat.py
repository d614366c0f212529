"""Chat messages to token ids through a model's own template: one rendering for training, decoding and serving.

The template writes every special token itself, BOS too, so the tokenizer adds none: the same chat gives the same ids
everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretell.errors import UsageError


def has_template(tokenizer: Any) -> bool:
    """True where ``tokenizer`` can render a chat."""
    return bool(getattr(tokenizer, "chat_template", None))


def check_text(text: str, name: str) -> None:
    """Raise UsageError for half a character, as JSON can write it, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{name} is no valid text ({error.reason} at character {error.start})") from error


def render_chat(
    tokenizer: Any,
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None = None,
    add_generation_prompt: bool = True,
) -> str:
    """The template's text of ``messages``; with the generation prompt it ends where the assistant begins.

    Raises UsageError with the template's own words where it refuses them.
    """
    try:
        return tokenizer.apply_chat_template(
            list(messages), tools=tools, tokenize=False, add_generation_prompt=add_generation_prompt
        )
    except Exception as error:  # templates raise what they like, for example on an unknown role
        raise UsageError(f"the model's chat template refuses these messages ({error})") from error


def chat_token_ids(
    tokenizer: Any,
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None = None,
    add_generation_prompt: bool = True,
) -> list[int]:
    """Token ids of ``render_chat``."""
    text = render_chat(tokenizer, messages, tools, add_generation_prompt)
    check_text(text, "the chat")
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
