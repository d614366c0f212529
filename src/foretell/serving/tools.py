"""Tools: which may be called, the grammar that forces a call, and calls found in an answer.

A free choice ("auto") is read from the ``<tool_call>{...}</tool_call>`` blocks that Qwen's, Hermes' and many other
templates teach their models. A forced one needs no such marks: a JSON grammar keeps the answer to a call.
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass, field
from typing import Any

from foretell.serving.chat_request import ChatRequest, NamedTool, Tool
from foretell.serving.errors import APIError

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_ITEM, _NEXT = re.compile(r"\[\s*"), re.compile(r"\s*,\s*")
"""What stands before the first item of a JSON list, and before each further one."""


def check_tools(request: ChatRequest, tokenizer: Any) -> None:
    """Raise APIError where the model's template knows no tools, or marks its calls in a way that is not read here."""
    if not request.tools or request.tool_choice == "none":
        return
    template = str(tokenizer.chat_template)
    if "tools" not in template:
        raise APIError(400, "tools: this model's chat template has no place for tools; leave them out", "tools")
    if request.tool_choice in (None, "auto") and _OPEN not in template:
        raise APIError(
            400,
            f'tools: this model does not mark its calls with {_OPEN}; give tool_choice "required" or name a function',
            "tools",
        )
    is_forced = request.tool_choice not in (None, "auto")
    if request.response_format is not None and request.response_format.type != "text":
        why = "tool_choice forces a call" if is_forced else "JSON alone leaves no room for calls"
        raise APIError(400, f'response_format: {why}; leave it out, or give tool_choice "none"', "response_format")
    if is_forced and request.stop:
        raise APIError(400, "stop: it would cut the call that tool_choice forces; leave it out", "stop")


def forced_schema(request: ChatRequest) -> dict[str, Any] | None:
    """What an answer has to fit where a call is forced: a named function's arguments, or a list of calls."""
    if isinstance(request.tool_choice, NamedTool):
        name = request.tool_choice.function.name
        return next(_parameters(tool) for tool in request.tools if tool.function.name == name)
    if request.tool_choice != "required":
        return None
    definitions: dict[str, Any] = {}
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.function.name}, "arguments": _moved(tool, definitions)},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for tool in request.tools
    ]
    most = {} if request.parallel_tool_calls else {"maxItems": 1}
    return {"type": "array", "items": {"anyOf": calls}, "minItems": 1, **most, "$defs": definitions}


@dataclass
class ToolReader:
    """Takes an answer's text as it comes, passes on what is no call, and keeps calls to the end."""

    request: ChatRequest
    _held: str = ""
    _whole: list[str] = field(default_factory=list)

    @property
    def _is_forced(self) -> bool:
        return self.request.tool_choice not in (None, "none", "auto")

    def push(self, text: str) -> str:
        """The text that can be shown now: none of a forced call, nothing from the first mark on."""
        if not self.request.tools or self.request.tool_choice == "none":
            return text
        self._whole.append(text)
        if self._is_forced:
            return ""
        self._held += text
        if (at := self._held.find(_OPEN)) < 0:
            at = len(self._held) - _begins(self._held)
        shown, self._held = self._held[:at], self._held[at:]
        return shown

    def end(self) -> tuple[str, list[dict[str, Any]]]:
        """Text that was kept for nothing, and the calls. What is no valid call stays text."""
        if self._is_forced and self.request.tools:
            return self._forced_calls()
        calls: list[dict[str, Any]] = []
        rest, text = self._held, ""
        while (at := rest.find(_OPEN)) >= 0:
            stop = rest.find(_CLOSE, at)
            block = rest[at + len(_OPEN) : None if stop < 0 else stop]
            after = "" if stop < 0 else rest[stop + len(_CLOSE) :]
            call = self._call(block) if self.request.parallel_tool_calls or not calls else None  # the rest stays text
            text += rest[:at] if call else rest[:at] + _OPEN + block + ("" if stop < 0 else _CLOSE)
            calls += [call] if call else []
            rest = after
        text += rest
        return ("" if calls and not text.strip() else text), calls

    def _forced_calls(self) -> tuple[str, list[dict[str, Any]]]:
        text = "".join(self._whole)
        choice = self.request.tool_choice
        if isinstance(choice, NamedTool):
            return "", [_call(choice.function.name, text)]
        found = _whole_items(text)
        if not found:  # cut by max_tokens: a valid beginning, and no call yet
            return text, []
        return "", [_call(call["name"], json.dumps(call["arguments"])) for call in found]

    def _call(self, block: str) -> dict[str, Any] | None:
        try:
            found = json.loads(block)
            name, arguments = found["name"], found.get("arguments", found.get("parameters", {}))
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            return None
        if name not in [tool.function.name for tool in self.request.tools]:
            return None
        return _call(name, arguments if isinstance(arguments, str) else json.dumps(arguments))


def _whole_items(text: str) -> list[Any]:
    """Items of a JSON list that may be cut, as far as they are whole."""
    found: list[Any] = []
    reader = json.JSONDecoder()
    mark = _ITEM.search(text)
    while mark:
        try:
            item, end = reader.raw_decode(text, mark.end())
        except (ValueError, RecursionError):
            break
        found.append(item)
        mark = _NEXT.match(text, end)
    return found


def _parameters(tool: Tool) -> dict[str, Any]:
    return tool.function.parameters or {"type": "object"}


def _moved(tool: Tool, definitions: dict[str, Any]) -> Any:
    """A tool's schema as a part of a larger one: what it defines goes into ``definitions``, under the tool's name."""
    prefix = "#/$defs/"

    def renamed(value: Any) -> Any:
        if isinstance(value, list):
            return [renamed(each) for each in value]
        if not isinstance(value, dict):
            return value
        found = {key: renamed(each) for key, each in value.items()}
        ref = found.get("$ref")
        if isinstance(ref, str) and ref.startswith(prefix):
            found["$ref"] = f"{prefix}{tool.function.name}.{ref.removeprefix(prefix)}"
        return found

    try:
        schema = renamed(_parameters(tool))
    except RecursionError:
        raise APIError(400, "tools: a schema that is nested too deep", "tools", "invalid_value") from None
    own = schema.pop("$defs", {})
    if isinstance(own, dict):
        definitions.update({f"{tool.function.name}.{name}": each for name, each in own.items()})
    return schema


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": f"call_{secrets.token_hex(12)}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _begins(text: str) -> int:
    """Length of the longest end of ``text`` that the mark begins with."""
    return next((size for size in range(len(_OPEN) - 1, 0, -1) if text.endswith(_OPEN[:size])), 0)
