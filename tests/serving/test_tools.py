"""Tools: forced calls are kept to their schemas, free ones are read from their marks, streamed or whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from foretell.models.trunk import Trunk
from foretell.serving.chat_request import ChatRequest
from foretell.serving.tools import ToolReader
from tests.fixtures import byte_tokenizer, encode, random_heads, tiny_llama
from tests.serving.live import Live, live, service_of

TEMPLATE = (
    "{% if tools %}{% for t in tools %}{{ t.function.name }}{% endfor %}<tool_call>{% endif %}"
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments.city }}"
    "{% endfor %}{% endfor %}"
)
TIGHT: Any = {"logit_bias": {str(token_id): -100 for token_id in encode(" \t\r\n")}}
"""A random model would go on with the blanks that JSON allows."""
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"enum": ["Rome", "Oslo"]},
                    "days": {"type": "integer", "minimum": 1, "maximum": 9},
                },
                "required": ["city", "days"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "stop"}},
]


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    trunk = Trunk(tiny_llama(), byte_tokenizer())
    with live(service_of(trunk, random_heads(trunk), template=TEMPLATE)) as found:
        yield found


@pytest.mark.parametrize("depth", [0, 3])
def test_a_named_function_is_called(server: Live, depth: int) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    fields: Any = {"tools": TOOLS, "tool_choice": choice, "max_tokens": 60, "speculative": {"depth": depth}, **TIGHT}
    status, body = server.chat("x", **fields)
    assert status == 200
    message = body["choices"][0]["message"]
    [call] = message["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    assert call["function"]["name"] == "weather" and call["type"] == "function" and call["id"]
    assert arguments["city"] in ("Rome", "Oslo") and 1 <= arguments["days"] <= 9
    assert message["content"] is None and body["choices"][0]["finish_reason"] == "tool_calls"
    events = server.events("/v1/chat/completions", messages=[{"role": "user", "content": "x"}], **fields)
    [delta] = [c["delta"]["tool_calls"][0] for e in events for c in e["choices"] if "tool_calls" in c["delta"]]
    assert delta["function"] == call["function"] and delta["index"] == 0
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert not any(c["delta"].get("content") for e in events for c in e["choices"])


def test_some_function_must_be_called(server: Live) -> None:
    for parallel in (False, True):
        _, body = server.chat(
            "y", tools=TOOLS[:1], tool_choice="required", parallel_tool_calls=parallel, max_tokens=300, **TIGHT
        )
        if body["choices"][0]["finish_reason"] != "length":
            calls = body["choices"][0]["message"]["tool_calls"]
            assert calls and all(call["function"]["name"] == "weather" for call in calls)
            assert parallel or len(calls) == 1


def test_schemas_with_definitions(server: Live) -> None:
    """As pydantic makes them; two tools may use one name."""
    tools = [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {
                    "$defs": {"Kind": {"enum": kinds}},
                    "type": "object",
                    "properties": {"kind": {"$ref": "#/$defs/Kind"}},
                    "required": ["kind"],
                    "additionalProperties": False,
                },
            },
        }
        for name, kinds in (("one", ["a", "b"]), ("two", ["c"]))
    ]
    status, body = server.chat(
        "x", tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=80, **TIGHT
    )
    assert status == 200
    [call] = body["choices"][0]["message"]["tool_calls"]
    kind = json.loads(call["function"]["arguments"])["kind"]
    assert kind in {"one": ("a", "b"), "two": ("c",)}[call["function"]["name"]]
    bad = [{"type": "function", "function": {"name": "f", "parameters": {"type": "nonsense"}}}]
    status, body = server.chat("x", tools=bad, tool_choice="required")
    assert (status, body["error"]["param"]) == (400, "tools")


def test_an_answer_may_be_sent_back(server: Live) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None, "annotations": []},
        {"role": "tool", "tool_call_id": "c1", "content": "warm"},
    ]
    status, body = server.post("/v1/chat/completions", {"messages": messages, "tools": TOOLS, "max_tokens": 2})
    assert status == 200
    # names of tools, the mark, "x", the city of the call, the tool's answer
    assert body["usage"]["prompt_tokens"] == len("weatherstop<tool_call>xRomewarm")


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_free_calls_are_read_from_their_marks(size: int) -> None:
    def read(text: str) -> tuple[str, list[Any]]:
        request = ChatRequest.model_validate({"messages": [{"role": "user", "content": "x"}], "tools": TOOLS})
        reader = ToolReader(request)
        shown = "".join(reader.push(text[i : i + size]) for i in range(0, len(text), size))
        rest, calls = reader.end()
        return shown + rest, [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]

    rome = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    assert read("no call < at all <tool") == ("no call < at all <tool", [])
    assert read(f"Let me see. {rome}") == ("Let me see. ", [("weather", {"city": "Rome"})])
    assert read(rome + "\n" + rome) == ("", [("weather", {"city": "Rome"})] * 2)
    for odd in (
        "<tool_call>{broken</tool_call>",
        '<tool_call>{"name": "other"}</tool_call>',
        "<tool_call>[1]</tool_call>",
    ):
        assert read(f"a{odd}b") == (f"a{odd}b", [])
    assert read('<tool_call>{"name": "stop"}') == ("", [("stop", {})])


def test_what_a_template_does_not_know_is_refused(server: Live) -> None:
    tokenizer = server.service.engine.model.trunk.tokenizer
    for template, word in (("{{ messages[0].content }}", "no place for tools"), ("{{ tools }}", "required")):
        tokenizer.chat_template = template
        try:
            status, body = server.chat("x", tools=TOOLS)
        finally:
            tokenizer.chat_template = TEMPLATE
        assert (status, body["error"]["param"]) == (400, "tools") and word in body["error"]["message"]
    assert server.chat("x", tools=TOOLS, tool_choice="none", max_tokens=2)[0] == 200


def test_what_would_keep_a_call_from_coming_is_refused(server: Live) -> None:
    forms = {"type": "json_object"}
    for fields, param in (
        ({"response_format": forms}, "response_format"),
        ({"response_format": forms, "tool_choice": "required"}, "response_format"),
        ({"stop": ["x"], "tool_choice": "required"}, "stop"),
    ):
        status, body = server.chat("x", tools=TOOLS, max_tokens=2, **fields)
        assert (status, body["error"]["param"]) == (400, param)
    for fields in (
        {"response_format": {"type": "text"}},
        {"stop": ["x"]},
        {"response_format": forms, "tool_choice": "none"},
    ):
        assert server.chat("x", tools=TOOLS, max_tokens=2, **fields)[0] == 200


def test_a_second_call_that_was_not_wanted_stays_text() -> None:
    request = ChatRequest.model_validate(
        {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS, "parallel_tool_calls": False}
    )
    reader = ToolReader(request)
    call = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
    shown = reader.push(call + call)
    rest, calls = reader.end()
    assert len(calls) == 1 and shown + rest == call


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('[{"name": "stop", "arguments": {}}, {"name": "weather", "arg', ["stop"]),
        ('[ {"name": "stop", "arguments": {}}\n', ["stop"]),
        ('[\n{"name": "stop", "arguments": {}} , {"name": "stop", "arguments": {"a": [1, 2]}}]', ["stop", "stop"]),
        ('[{"name": "st', []),
        ("[", []),
    ],
)
def test_calls_that_are_whole_survive_a_cut(text: str, names: list[str]) -> None:
    request = ChatRequest.model_validate(
        {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS, "tool_choice": "required"}
    )
    reader = ToolReader(request)
    assert reader.push(text) == ""
    rest, calls = reader.end()
    assert [call["function"]["name"] for call in calls] == names and rest == ("" if names else text)
