"""A chat's token ids, and which of them the assistant wrote."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from foretell.errors import UsageError
from foretell.models.chat import chat_token_ids, has_template

_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


@dataclass(frozen=True)
class Chat:
    """Messages and the tools they may call, as the template takes them."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None


def check_messages(messages: object, tools: object = None) -> None:
    """Raise UsageError unless this is a list of role and content; content may be left out beside tool_calls."""
    if not isinstance(messages, list) or not messages:
        raise UsageError(f"messages must be a list of role and content, got {_short(messages)}")
    for number, message in enumerate(messages, start=1):
        if (
            not isinstance(message, dict)
            or not isinstance(message.get("role"), str)
            or not (
                isinstance(message.get("content"), str)
                or (message.get("content") is None and isinstance(message.get("tool_calls"), list))
            )
        ):
            raise UsageError(f'message {number} needs text for "role" and "content", got {_short(message)}')
    if tools is not None and not isinstance(tools, list):
        raise UsageError(f"tools must be a list, got {_short(tools)}")


def chat_targets(tokenizer: Any, chat: Chat, answers_alone: bool = True) -> tuple[list[int], list[bool]]:
    """(token ids, flags): flagged are the assistant's turns, each with the token that ends it.

    A template with ``{% generation %}`` marks them itself. Of another one, each turn must come out the same whether the
    chat ends there or goes on, so that what stands before and in it can be counted; raises UsageError where it does
    not, unless ``answers_alone`` is False and all flags are set.
    """
    if not has_template(tokenizer):
        raise UsageError(
            'is a chat, and the tokenizer has no chat template; give "prompt" and "completion", or "text", '
            "or a trunk with a template"
        )
    token_ids = chat_token_ids(tokenizer, chat.messages, chat.tools, add_generation_prompt=False)
    if not answers_alone:
        return token_ids, [True] * len(token_ids)
    if _GENERATION.search(str(tokenizer.chat_template)):
        flags = _marked(tokenizer, chat, token_ids)
    else:
        flags = [False] * len(token_ids)
        for turn, message in enumerate(chat.messages):
            if message["role"] == "assistant":
                start, stop = _turn(tokenizer, chat, turn, token_ids)
                flags[start:stop] = [True] * (stop - start)
    return token_ids, flags


def _marked(tokenizer: Any, chat: Chat, token_ids: list[int]) -> list[bool]:
    """What the template marks; an EOS right behind it ends the turn, so it is learnt too."""
    found = tokenizer.apply_chat_template(
        chat.messages, tools=chat.tools, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    if list(found["input_ids"]) != token_ids:
        raise UsageError("the chat template gives other tokens when it marks the assistant's turns")
    flags = [bool(f) for f in found["assistant_masks"]]
    for i in range(1, len(flags)):
        if token_ids[i] == tokenizer.eos_token_id and flags[i - 1] and token_ids[i - 1] != token_ids[i]:
            flags[i] = True
    return flags


def _turn(tokenizer: Any, chat: Chat, turn: int, token_ids: list[int]) -> tuple[int, int]:
    """Where message ``turn`` begins and ends in ``token_ids``."""
    if turn == 0:
        raise UsageError("the chat begins with the assistant, so nothing says what is answered; begin with a user turn")
    before = chat_token_ids(tokenizer, chat.messages[:turn], chat.tools)
    through = chat_token_ids(tokenizer, chat.messages[: turn + 1], chat.tools, add_generation_prompt=False)
    for part, what in ((before, "before"), (through, "up to the end of")):
        if token_ids[: len(part)] != part:
            raise UsageError(
                f"the chat template writes what comes {what} message {turn + 1} differently when the chat goes on, "
                "so its answers cannot be told apart; use a template with {% generation %}, give chats of one answer, "
                'or set supervise = "all"'
            )
    if len(through) <= len(before):
        raise UsageError(f"the chat template writes nothing for message {turn + 1}, an answer")
    stop = len(through)
    # White space between the end-of-turn token and the next turn is the template's: nothing is generated there.
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    while stop > len(before) and token_ids[stop - 1] not in special and not _text(tokenizer, token_ids[stop - 1]):
        stop -= 1
    return len(before), stop if stop > len(before) and token_ids[stop - 1] in special else len(through)


def _text(tokenizer: Any, token_id: int) -> str:
    return tokenizer.decode([token_id]).strip()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
