"""The body of POST /v1/chat/completions."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from foretell.serving.fields import Fields, Name, SamplingFields, refusal

_IDLE = (
    "function_call",
    "functions",
    "audio",
    "prediction",
    "web_search_options",
    "moderation",
    "reasoning_effort",
    "verbosity",
    "prompt_cache_retention",
)
"""OpenAI's fields that ask for something that is not offered; only null passes."""


_IDLE_IN_MESSAGES = ("audio", "function_call", "reasoning_content")
"""What other servers' answers may have; null passes."""


class TextPart(Fields):
    """A part of a message's content; parts are joined. Images and sound are refused."""

    type: Literal["text", "refusal"]
    text: str = ""
    refusal: str = ""

    @model_validator(mode="after")
    def _has_own(self) -> TextPart:
        if self.type not in self.model_fields_set:
            raise refusal(self.type, f"a part of type {self.type} without {self.type}")
        return self


class FunctionCall(Fields):
    """What an earlier answer called; ``arguments`` is JSON text."""

    name: Name
    arguments: str


class ToolCall(Fields):
    """A call in an earlier answer."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall
    index: int | None = None


class Message(Fields):
    """One message. What an answer of this server or of OpenAI's has may be sent back as it is."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True)] = []
    tool_call_id: str | None = None
    refusal: str | None = None
    annotations: Annotated[list[Any], Field(max_length=0)] = []

    @model_validator(mode="before")
    @classmethod
    def _without_idle(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None or name not in _IDLE_IN_MESSAGES}

    @model_validator(mode="after")
    def _has_content(self) -> Message:
        if self.content is None and not self.tool_calls and self.refusal is None:
            raise refusal("content", "a message without content; give text")
        return self

    def rendered(self) -> dict[str, Any]:
        """What chat templates know: content as text, arguments of calls as objects."""
        parts = self.content if isinstance(self.content, list) else []
        content = self.content if isinstance(self.content, str) else "".join(part.text + part.refusal for part in parts)
        content = content or self.refusal or ""
        found: dict[str, Any] = {"role": "system" if self.role == "developer" else self.role, "content": content}
        found |= {key: value for key in ("name", "tool_call_id") if (value := getattr(self, key)) is not None}
        if self.tool_calls:
            found["tool_calls"] = [
                {"type": "function", "id": call.id, "function": _as_object(call.function)} for call in self.tool_calls
            ]
        return found


class Function(Fields):
    """A function that may be called; ``parameters`` is a JSON schema."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] = {}
    strict: bool | None = None


class Tool(Fields):
    """A function; other kinds of tools are refused."""

    type: Literal["function"]
    function: Function


class FunctionName(Fields):
    """Names a function."""

    name: str


class NamedTool(Fields):
    """The one function that is to be called."""

    type: Literal["function"]
    function: FunctionName


class ChatRequest(SamplingFields):
    """OpenAI's fields. By default an answer may fill what is left of the window."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=4096, fail_fast=True)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Annotated[list[Tool], Field(max_length=256, fail_fast=True)] = []
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool = True
    modalities: list[Literal["text"]] = ["text"]
    store: Literal[False] = False
    service_tier: Literal["auto", "default"] = "auto"
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _not_offered(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        for name in _IDLE:
            if values.get(name) is not None:
                raise refusal(name, "is not offered; leave it out")
        return {name: value for name, value in values.items() if name not in _IDLE}

    @model_validator(mode="after")
    def _together(self) -> ChatRequest:
        if self.top_logprobs is not None and not self.logprobs:
            raise refusal("top_logprobs", "goes with logprobs: true alone")
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise refusal("max_tokens", "differs from max_completion_tokens, its newer name; give one of them")
        if self.tool_choice not in (None, "none") and not self.tools:
            raise refusal("tool_choice", "there are no tools to choose from; give tools")
        if isinstance(self.tool_choice, NamedTool):
            names = [tool.function.name for tool in self.tools]
            if self.tool_choice.function.name not in names:
                raise refusal("tool_choice", f"no tool has that name; there are {', '.join(names)[:200]}")
        return self

    @property
    def limit(self) -> int | None:
        """Tokens of an answer at most; None for what is left of the window."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


def _as_object(function: FunctionCall) -> dict[str, Any]:
    try:
        arguments = json.loads(function.arguments)
    except (ValueError, RecursionError):
        arguments = function.arguments  # some templates print whatever they get
    return {"name": function.name, "arguments": arguments}
