"""Chat messages to token ids through a model's own template: one rendering for training, decoding and serving.

The template writes every special token itself, BOS too, so the tokenizer adds none: the same chat gives the same ids
everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretell.errors import ContextLengthError, UsageError


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
    most: int | None = None,
) -> list[int]:
    """Token ids of ``render_chat``; see ``text_token_ids``."""
    text = render_chat(tokenizer, messages, tools, add_generation_prompt)
    return text_token_ids(tokenizer, text, "the chat", most, add_special_tokens=False)


def text_token_ids(
    tokenizer: Any, text: str, name: str, most: int | None = None, add_special_tokens: bool = True
) -> list[int]:
    """Token ids of ``text``. ``most``: tokens of the window that it has to fit; of one far too long the beginning alone
    is encoded, as megabytes take long.

    Raises UsageError for half a character, ContextLengthError for a text far too long.
    """
    check_text(text, name)

    def encoded(part: str) -> list[int]:
        return list(tokenizer(part, add_special_tokens=add_special_tokens)["input_ids"])

    if most is not None:
        size = 8 * most + 1024
        while size < len(text):
            if (num_tokens := len(encoded(text[:size]))) > most + _EDGE:
                raise too_long(name, num_tokens, most, "at least ")
            size *= 4
    return encoded(text)


def too_long(name: str, num_tokens: int, window: int, least: str = "") -> ContextLengthError:
    """What a prompt that leaves no room in the window is told; ``least`` where its tokens were not all counted."""
    return ContextLengthError(
        f"{name} has {least}{num_tokens} tokens and the window holds {window}, output included; "
        f"shorten the prompt to at most {window - 1} tokens"
    )


_EDGE = 64
"""Where a text is cut, its last tokens may be others than the whole's."""
