"""POST /v1/chat/completions: messages to asks, pieces to OpenAI's messages."""

from __future__ import annotations

from typing import Any

from foretell.errors import UsageError
from foretell.models.chat import chat_token_ids, has_template
from foretell.serving.answer import Answer
from foretell.serving.chat_request import ChatRequest
from foretell.serving.choices import Piece
from foretell.serving.errors import APIError
from foretell.serving.prompts import checked_prompt, room
from foretell.serving.sampling import depth_of, sampling_params
from foretell.serving.service import Ask, Service
from foretell.serving.tools import ToolReader, check_tools, forced_schema


def chat_answer(service: Service, request: ChatRequest, label: str) -> ChatAnswer:
    """Raises APIError. Renders and encodes the chat: call it in a thread."""
    trunk = service.engine.model.trunk
    if trunk.tokenizer is None or not has_template(trunk.tokenizer):
        raise APIError(400, "this model has no chat template; send text to /v1/completions", "messages", "no_template")
    check_tools(request, trunk.tokenizer)
    shown = [tool.model_dump(exclude_none=True) for tool in request.tools] if request.tool_choice != "none" else []
    try:
        messages = [message.rendered() for message in request.messages]
        token_ids = chat_token_ids(trunk.tokenizer, messages, shown or None, most=trunk.max_positions)
    except UsageError as error:
        raise APIError(400, str(error), "messages", "invalid_value") from error
    prompt = checked_prompt(trunk, token_ids, "the chat")
    num_tokens = room(service.engine.max_length, len(prompt), request.limit)
    num_top = (request.top_logprobs or 0) if request.logprobs else None
    schema = forced_schema(request)
    params = sampling_params(
        request, num_tokens, num_top, trunk.vocab_size, **({} if schema is None else {"json_schema": schema})
    )
    schema_param = "response_format" if schema is None else "tools"
    ask = Ask([prompt], params, depth_of(request, service), label, schema_param)
    return ChatAnswer(service, request, ask, num_top)


class ChatAnswer(Answer):
    """Messages of the assistant; calls of tools come whole, at the end."""

    id_prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    request: ChatRequest

    def __init__(self, service: Service, request: ChatRequest, ask: Ask, num_top: int | None) -> None:
        super().__init__(service, request, ask, num_top)
        self._readers = [ToolReader(request) for _ in self.choices]
        self._begun: set[int] = set()

    def whole_choice(self, piece: Piece) -> dict[str, Any]:
        """A choice of OpenAI's chat completions."""
        reader = self._readers[piece.index]
        shown = reader.push(piece.text)
        rest, calls = reader.end()
        message: dict[str, Any] = {"role": "assistant", "content": shown + rest, "refusal": None}
        if calls:
            message |= {"content": message["content"] or None, "tool_calls": calls}
        return {
            "index": piece.index,
            "message": message,
            "logprobs": piece.logprobs,
            "finish_reason": _reason(piece, bool(calls)),
            **self.extras(piece),
        }

    def chunk_choices(self, piece: Piece) -> list[dict[str, Any]]:
        """A delta with the role first, then text as it comes, and the reason of the end in one of its own."""
        found = []
        if piece.index not in self._begun:
            self._begun.add(piece.index)
            found.append(self._chunk(Piece(piece.index, ""), {"role": "assistant", "content": ""}))
        reader = self._readers[piece.index]
        text = reader.push(piece.text)
        calls: list[dict[str, Any]] = []
        if piece.finish_reason is not None:
            rest, calls = reader.end()
            text += rest
        delta: dict[str, Any] = {"content": text} if text else {}
        if calls:
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(calls)]
        if delta or not piece.is_empty:
            reason, piece.finish_reason = _reason(piece, bool(calls)), None
            if delta or piece.logprobs or piece.token_ids or piece.tokens:
                found.append(self._chunk(piece, delta))
            if reason is not None:
                found.append(self._chunk(Piece(piece.index, ""), {}, reason))
        return found

    def _chunk(self, piece: Piece, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {
            "index": piece.index,
            "delta": delta,
            "logprobs": piece.logprobs,
            "finish_reason": reason,
            **self.extras(piece),
        }


def _reason(piece: Piece, has_calls: bool) -> str | None:
    return "tool_calls" if has_calls and piece.finish_reason == "stop" else piece.finish_reason
