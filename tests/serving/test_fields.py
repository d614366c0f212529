"""C36: every field of OpenAI's works, or is refused by name; nothing is dropped without a word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from foretell.models.trunk import Trunk
from tests.fixtures import byte_tokenizer, encode, random_heads, script_trunk, tiny_llama
from tests.serving.live import ALPHABET, Live, live, scripted, service_of


@pytest.fixture(scope="module")
def letters() -> Iterator[Live]:
    with live(scripted()) as server:
        yield server


@pytest.fixture(scope="module")
def random_model() -> Iterator[Live]:
    trunk = Trunk(tiny_llama(), byte_tokenizer())
    with live(service_of(trunk, random_heads(trunk), max_batch=8)) as server:
        yield server


BOTH = pytest.mark.parametrize("kind", ["chat", "complete"])


def ask(server: Live, kind: str, text: str = ">", **fields: Any) -> tuple[int, Any]:
    return server.chat(text, **fields) if kind == "chat" else server.complete(text, **fields)


def texts(body: Any) -> list[str]:
    return [c["text"] if "text" in c else c["message"]["content"] for c in body["choices"]]


@BOTH
def test_fields_with_a_visible_effect(letters: Live, random_model: Live, kind: str) -> None:
    for name in ("max_tokens", "max_completion_tokens") if kind == "chat" else ("max_tokens",):
        status, body = ask(letters, kind, **{name: 2})
        assert (status, texts(body)) == (200, ["ab"]) and body["choices"][0]["finish_reason"] == "length"
    _, body = ask(letters, kind, max_tokens=8, stop=["d"])
    assert texts(body) == ["abc"] and body["choices"][0]["finish_reason"] == "stop"
    [b, z] = encode("bz")
    _, body = ask(letters, kind, max_tokens=1, logit_bias={str(z): 100})
    assert texts(body) == ["z"]
    _, body = ask(random_model, kind, max_tokens=20, n=3, temperature=1.5, seed=4)
    assert [c["index"] for c in body["choices"]] == [0, 1, 2] and len(set(texts(body))) == 3
    _, again = ask(random_model, kind, max_tokens=20, n=3, temperature=1.5, seed=4)
    _, other = ask(random_model, kind, max_tokens=20, n=3, temperature=1.5, seed=5)
    assert texts(again) == texts(body) != texts(other)
    plain = texts(ask(random_model, kind, max_tokens=40)[1])
    for penalty in ({"presence_penalty": 2}, {"frequency_penalty": 2}, {"repetition_penalty": 1.5}):
        drafted = texts(ask(random_model, kind, max_tokens=40, speculative={"depth": 3}, **penalty)[1])
        assert drafted == texts(ask(random_model, kind, max_tokens=40, speculative={"depth": 0}, **penalty)[1]) != plain
    hot = {"temperature": 2, "seed": 1, "max_tokens": 30}
    for narrow in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        assert texts(ask(random_model, kind, **hot, **narrow)[1]) == texts(ask(random_model, kind, max_tokens=30)[1])
    assert texts(ask(random_model, kind, **hot)[1]) != texts(ask(random_model, kind, max_tokens=30)[1])


def test_choices_are_streamed_apart(random_model: Live) -> None:
    fields: Any = {"n": 3, "temperature": 1.5, "seed": 4, "max_tokens": 20}
    whole = texts(random_model.complete("x", **fields)[1])
    found = ["", "", ""]
    for event in random_model.events("/v1/completions", prompt="x", **fields):
        for choice in event["choices"]:
            found[choice["index"]] += choice["text"]
    assert found == whole and len(set(found)) == 3


@BOTH
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_json_fits_its_schema(random_model: Live, kind: str, depth: int) -> None:
    """C40, of random text."""
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 5},
            "size": {"enum": ["s", "m"]},
            "nested": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 2},
        },
        "required": ["name", "size", "nested"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema, "strict": True}}
    fields: Any = {"response_format": form, "max_tokens": 200, "speculative": {"depth": depth}}
    greedy = []
    for temperature, seed in ((0, 0), (1, 1), (1, 2)):
        status, body = ask(random_model, kind, "x", temperature=temperature, seed=seed, **fields)
        assert status == 200
        if body["choices"][0]["finish_reason"] == "stop":
            value = json.loads(texts(body)[0])
            assert set(value) == {"name", "size", "nested"} and value["size"] in ("s", "m")
        greedy += texts(body) if temperature == 0 else []
    assert greedy == texts(ask(random_model, kind, "x", **fields | {"speculative": {"depth": 0}})[1])
    _, body = ask(random_model, kind, "x", **fields | {"max_tokens": 3})
    assert body["choices"][0]["finish_reason"] == "length"
    status, body = ask(random_model, kind, "x", response_format={"type": "json_object"}, max_tokens=20)
    assert status == 200 and texts(body)[0].lstrip().startswith("{")


@BOTH
def test_harmless_values_pass(letters: Live, kind: str) -> None:
    fields: dict[str, Any] = dict.fromkeys(
        ("stop", "seed", "logit_bias", "response_format", "stream_options", "metadata", "user", "top_p", "stream", "n")
    )
    if kind == "chat":
        fields |= {
            "logprobs": False,
            "tools": None,
            "tool_choice": None,
            "functions": None,
            "function_call": None,
            "verbosity": None,
        }
        fields |= {"modalities": ["text"], "store": False, "service_tier": "auto", "parallel_tool_calls": True}
    else:
        fields |= {"logprobs": None, "echo": False, "best_of": 1, "suffix": None}
    for values in (fields, {"n": 1, "user": "me", "presence_penalty": 0, "logit_bias": {}, "stop": []}):
        status, body = ask(letters, kind, max_tokens=3, **values)
        assert (status, texts(body)) == (200, ["abc"])


CHAT_ONLY = [
    ("top_logprobs", {"top_logprobs": 3}),
    ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
    ("logprobs", {"logprobs": 5}),
    ("max_tokens", {"max_tokens": 3, "max_completion_tokens": 4}),
    ("tool_choice", {"tool_choice": "required"}),
    ("tools", {"tools": [{"type": "function", "function": {"name": "f"}}]}),
    ("functions", {"functions": [{"name": "f"}]}),
    ("audio", {"audio": {"voice": "x"}}),
    ("modalities.0", {"modalities": ["audio"]}),
    ("store", {"store": True}),
    ("echo", {"echo": True}),
    ("reasoning_effort", {"reasoning_effort": "low"}),
]
TEXT_ONLY = [
    ("best_of", {"best_of": 3}),
    ("suffix", {"suffix": "end"}),
    ("logprobs", {"logprobs": True}),
    ("max_tokens", {"max_tokens": 0}),
    ("messages", {"messages": []}),
]
EITHER = [
    ("nonsense", {"nonsense": 1}),
    ("max-tokens", {"max-tokens": 1}),
    ("Temperature", {"Temperature": 1}),
    ("list", {"list": 1}),
    ("temperature", {"temperature": 5}),
    ("temperature", {"temperature": -1}),
    ("temperature", {"temperature": "1"}),
    ("temperature", {"temperature": True}),
    ("top_p", {"top_p": 0}),
    ("top_p", {"top_p": 1.1}),
    ("n", {"n": 0}),
    ("n", {"n": 129}),
    ("n", {"n": 1.5}),
    ("max_tokens", {"max_tokens": -1}),
    ("max_tokens", {"max_tokens": 10**30}),
    ("max_tokens", {"max_tokens": 512}),
    ("seed", {"seed": 2**64}),
    ("stop", {"stop": ["a", "b", "c", "d", "e"]}),
    ("stop", {"stop": ""}),
    ("stop", {"stop": 3}),
    ("presence_penalty", {"presence_penalty": 3}),
    ("logit_bias", {"logit_bias": {"x": 1}}),
    ("logit_bias", {"logit_bias": {"999999": 1}}),
    ("logit_bias", {"logit_bias": {"5": 101}}),
    ("logit_bias", {"logit_bias": [1]}),
    ("stream_options", {"stream_options": {"include_usage": True}}),
    ("response_format.type", {"response_format": {"type": "xml"}}),
    ("response_format.json_schema", {"response_format": {"type": "json_schema"}}),
    ("response_format", {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "zzz"}}}}),
    ("metadata", {"metadata": {"class": "bad\nlabel"}}),
    ("speculative.depth", {"speculative": {"depth": -1}}),
    ("speculative.policy", {"speculative": {"policy": "fast"}}),
    ("speculative.depth", {"speculative": {"policy": "off", "depth": 2}}),
    ("speculative.nodes", {"speculative": {"nodes": 2}}),
    ("min_tokens", {"min_tokens": 100, "max_tokens": 4}),
]


@pytest.mark.parametrize(
    ("kind", "param", "fields"),
    [("chat", *case) for case in EITHER + CHAT_ONLY] + [("complete", *case) for case in EITHER + TEXT_ONLY],
    ids=str,
)
def test_refused_by_name(letters: Live, kind: str, param: str, fields: dict[str, Any]) -> None:
    status, body = ask(letters, kind, **fields)
    assert status == 400, body
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["type"] == "invalid_request_error"
    assert error["param"] == param and param.split(".")[0] in error["message"]
    assert "Traceback" not in error["message"] and len(error["message"]) < 400


def test_a_prompt_of_every_form(letters: Live) -> None:
    ids = encode(">")
    for prompt, count in ((">", 1), (ids, 1), ([">", "b"], 2), ([ids, encode("b")], 2)):
        status, body = letters.complete(prompt, max_tokens=2)
        assert status == 200 and texts(body) == ["ab", "cd"][:count]
        assert body["usage"]["prompt_tokens"] == count
    for prompt in ("", [], [[]], [""], [1, "a"], 5, None, [10**6], [-1], {"a": 1}):
        status, body = letters.complete(prompt, max_tokens=2)
        assert (status, body["error"]["param"].split(".")[0]) == (400, "prompt"), prompt


def test_echo_and_scores_alone(letters: Live) -> None:
    _, body = letters.complete("bcd", max_tokens=2, echo=True)
    assert texts(body) == ["bcdef"]
    _, body = letters.complete("bcd", max_tokens=0, echo=True, logprobs=1)
    [choice] = body["choices"]
    assert body["usage"]["completion_tokens"] == 0
    assert choice["text"] == "bcd" and choice["logprobs"]["tokens"] == ["b", "c", "d"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2] and choice["finish_reason"] == "length"
    [event] = letters.events("/v1/completions", prompt="bcd", max_tokens=0, echo=True)
    assert event["choices"][0]["text"] == "bcd"


def test_content_in_parts_is_joined(letters: Live) -> None:
    parts = [{"type": "text", "text": "x"}, {"type": "text", "text": "b"}]
    status, body = letters.chat(parts, max_tokens=2)  # type: ignore[arg-type]
    assert (status, texts(body)) == (200, ["cd"]) and body["usage"]["prompt_tokens"] == 2


def test_messages_of_other_servers_may_be_sent_back(letters: Live) -> None:
    answer = {"role": "assistant", "content": "x", "audio": None, "function_call": None, "reasoning_content": None}
    refused = {"role": "assistant", "content": None, "refusal": "xb"}
    part = {"role": "assistant", "content": [{"type": "refusal", "refusal": "xb"}]}
    for message, text in ((answer, "x"), (refused, "xb"), (part, "xb")):
        body = {"messages": [message, {"role": "user", "content": "b"}], "max_tokens": 2, "temperature": 0}
        status, found = letters.post("/v1/chat/completions", body)
        assert (status, texts(found)) == (200, ["cd"]) and found["usage"]["prompt_tokens"] == len(text) + 1
    bad = {"role": "user", "content": [{"type": "text", "refusal": "b"}]}
    status, found = letters.post("/v1/chat/completions", {"messages": [bad]})
    assert (status, found["error"]["param"]) == (400, "messages.0.content.0.text")


def test_policies_need_somebody_who_drafts() -> None:
    with live(service_of(script_trunk(ALPHABET))) as plain:
        for asked, param in (({"policy": "auto"}, "policy"), ({"policy": "fixed"}, "policy"), ({"depth": 2}, "depth")):
            status, body = plain.complete(speculative=asked)
            assert (status, body["error"]["param"]) == (400, f"speculative.{param}")
        assert plain.complete(speculative={"policy": "off"}, max_tokens=1)[0] == 200


def test_the_official_client_raises_its_own_errors(letters: Live) -> None:
    client = letters.client
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "x"}], temperature=5)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt="x" * 600)
    assert caught.value.code == "context_length_exceeded"
    assert [model.id for model in client.models.list()] == ["tiny"] and client.models.retrieve("tiny").id == "tiny"


def test_a_seed_means_something(random_model: Live) -> None:
    """C29: alone and beside others, with the server's own policy."""
    fields: Any = {"temperature": 1.5, "max_tokens": 30, "prompt": "abc"}
    first = random_model.client.completions.create(model="tiny", seed=42, **fields).choices[0].text
    both = random_model.client.completions.create(model="tiny", seed=43, n=3, **fields)
    assert random_model.client.completions.create(model="tiny", seed=42, **fields).choices[0].text == first
    assert first not in [choice.text for choice in both.choices]
    free = {random_model.client.completions.create(model="tiny", **fields).choices[0].text for _ in range(3)}
    assert len(free) == 3
