"""What is streamed is what comes in one piece, at every depth: text, ids, log-probabilities, reason and usage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from foretell.models.trunk import Trunk
from foretell.serving.answer import _data
from tests.fixtures import byte_tokenizer, dist_heads, dist_trunk, encode, random_heads, tiny_llama
from tests.serving.live import Live, live, scripted, service_of

CHAIN = ">a😀é中!<eos>X"
DIST = dict(zip(encode("ABCD"), (0.5, 0.3, 0.15, 0.05), strict=True))
DEPTHS = [0, 1, 2, 3, 5]


@pytest.fixture(scope="module")
def characters() -> Iterator[Live]:
    with live(scripted(CHAIN)) as server:
        yield server


@pytest.fixture(scope="module")
def letters() -> Iterator[Live]:
    with live(scripted()) as server:
        yield server


@pytest.fixture(scope="module")
def dice() -> Iterator[Live]:
    trunk = dist_trunk(DIST, 128)
    with live(service_of(trunk, dist_heads(trunk, DIST))) as server:
        yield server


@pytest.fixture(scope="module")
def random_model() -> Iterator[Live]:
    trunk = Trunk(tiny_llama(), byte_tokenizer())
    with live(service_of(trunk, random_heads(trunk))) as server:
        yield server


def chat_of(events: list[Any]) -> dict[str, Any]:
    """A streamed message put together."""
    found: dict[str, Any] = {"text": "", "reason": None, "logprobs": [], "ids": [], "roles": [], "usage": None}
    for event in events:
        found["usage"] = event.get("usage") or found["usage"]
        for choice in event["choices"]:
            assert found["reason"] is None, "something came after the end"
            delta = choice["delta"]
            found["text"] += delta.get("content") or ""
            found["roles"] += [delta["role"]] if "role" in delta else []
            found["logprobs"] += (choice["logprobs"] or {}).get("content", [])
            found["ids"] += choice.get("token_ids", [])
            found["reason"] = choice["finish_reason"]
    return found


def text_of(events: list[Any]) -> tuple[str, Any, list[Any], list[int]]:
    choices = [choice for event in events for choice in event["choices"]]
    logprobs = [entry for c in choices if c["logprobs"] for entry in c["logprobs"]["token_logprobs"]]
    ids = [i for c in choices for i in c.get("token_ids", [])]
    return "".join(c["text"] for c in choices), choices[-1]["finish_reason"], logprobs, ids


@pytest.mark.parametrize("depth", DEPTHS)
def test_characters_come_whole(characters: Live, depth: int) -> None:
    """C20, C32: nothing after EOS, no half characters, letters not delayed."""
    fields: Any = {"speculative": {"depth": depth}, "return_token_ids": True}
    status, whole = characters.chat(**fields, logprobs=True)
    choice = whole["choices"][0]
    assert (status, choice["message"]["content"], choice["finish_reason"]) == (200, "a😀é中!", "stop")
    assert choice["token_ids"] == encode("a😀é中!<eos>")
    assert bytes(b for e in choice["logprobs"]["content"] for b in e["bytes"]).decode() == "a😀é中!"
    assert whole["usage"] == {"prompt_tokens": 1, "completion_tokens": 12, "total_tokens": 13}
    messages = [{"role": "user", "content": ">"}]
    stream_options = {"include_usage": True}
    events = characters.events(
        "/v1/chat/completions", messages=messages, logprobs=True, stream_options=stream_options, **fields
    )
    found = chat_of(events)
    assert (found["text"], found["reason"], found["roles"]) == ("a😀é中!", "stop", ["assistant"])
    assert found["ids"] == choice["token_ids"] and found["usage"] == whole["usage"]
    assert found["logprobs"] == choice["logprobs"]["content"]
    assert not any("\ufffd" in str(event) for event in events)
    if depth == 0:
        texts = [c["delta"].get("content") for e in events for c in e["choices"]]
        assert [text for text in texts if text] == ["a", "😀", "é", "中", "!"]


@pytest.mark.parametrize("max_tokens", range(1, 8))
def test_a_cut_inside_a_character(characters: Live, max_tokens: int) -> None:
    texts = []
    for depth in (0, 3):
        _, whole = characters.complete(max_tokens=max_tokens, speculative={"depth": depth})
        events = characters.events("/v1/completions", prompt=">", max_tokens=max_tokens, speculative={"depth": depth})
        text, reason, _, _ = text_of(events)
        assert (text, reason) == (whole["choices"][0]["text"], "length")
        texts.append(text)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("stop", "text"), [("efg", "abcd"), (["xyz", "hij"], "abcdefg"), (["fgX"], "abcdefghij")])
def test_stop_strings_never_leak(letters: Live, depth: int, stop: Any, text: str) -> None:
    fields: Any = {"stop": stop, "max_tokens": 10, "speculative": {"depth": depth}}
    _, whole = letters.complete(**fields)
    events = letters.events("/v1/completions", prompt=">", **fields)
    reason = "length" if stop == ["fgX"] else "stop"
    assert (whole["choices"][0]["text"], whole["choices"][0]["finish_reason"]) == (text, reason)
    assert text_of(events)[:2] == (text, reason)


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("depth", [0, 3])
def test_logprobs_of_a_known_distribution(dice: Live, depth: int, temperature: int) -> None:
    """C34: the model's own at every token, whoever guessed it; the same four alternatives."""
    fields: Any = {
        "logprobs": True,
        "top_logprobs": 4,
        "max_tokens": 50,
        "temperature": temperature,
        "seed": 7,
        "speculative": {"depth": depth},
        "return_token_ids": True,
    }
    right = dict(zip("ABCD", (-0.6931, -1.2040, -1.8971, -2.9957), strict=True))
    _, whole = dice.chat("x", **fields)
    choice = whole["choices"][0]
    content = choice["logprobs"]["content"]
    assert len(content) == 50 == len(choice["token_ids"])
    assert "".join(entry["token"] for entry in content) == choice["message"]["content"]
    for entry in content:
        assert entry["logprob"] == pytest.approx(right[entry["token"]], abs=1e-3)
        assert {top["token"]: top["logprob"] for top in entry["top_logprobs"]} == pytest.approx(right, abs=1e-3)
    found = chat_of(dice.events("/v1/chat/completions", messages=[{"role": "user", "content": "x"}], **fields))
    assert found["logprobs"] == content and found["ids"] == choice["token_ids"]


@pytest.mark.parametrize("depth", [0, 3])
def test_logprobs_of_a_random_model(random_model: Live, depth: int) -> None:
    """Against one forward pass of the text, prompt included (echo); offsets say where each token begins."""
    fields: Any = {"logprobs": 2, "echo": True, "max_tokens": 30, "speculative": {"depth": depth}, "ignore_eos": True}
    _, whole = random_model.complete("some text", return_token_ids=True, **fields)
    [choice] = whole["choices"]
    ids = choice["token_ids"]
    trunk = random_model.service.engine.model.trunk
    with torch.inference_mode():
        logprobs_TV = trunk.model(torch.tensor([ids])).logits[0].log_softmax(-1)
    values = choice["logprobs"]["token_logprobs"]
    assert values[0] is None and len(values) == len(ids) == 9 + 30
    right = [logprobs_TV[i, token].item() for i, token in enumerate(ids[1:])]
    assert values[1:] == pytest.approx(right, abs=1e-3)
    for i, top in enumerate(choice["logprobs"]["top_logprobs"][1:]):
        best = logprobs_TV[i].topk(2).values.tolist()
        assert len(top) == 2 and sorted(top.values(), reverse=True) == pytest.approx(best, abs=1e-3)
    assert choice["logprobs"]["text_offset"][:9] == list(range(9))
    assert choice["text"].startswith("some text")
    text, reason, streamed, _ = text_of(random_model.events("/v1/completions", prompt="some text", **fields))
    assert (text, reason, streamed) == (choice["text"], "length", values)


def test_every_depth_gives_the_same_answer(random_model: Live) -> None:
    answers = [
        random_model.complete("abc", max_tokens=60, return_token_ids=True, speculative={"depth": depth})[1]["choices"]
        for depth in DEPTHS
    ]
    assert len(answers[0][0]["token_ids"]) > 10 and all(answer == answers[0] for answer in answers)


def test_the_official_client_streams(letters: Live) -> None:
    stream = letters.client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": ">"}], max_tokens=9, temperature=0, stream=True
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "abcdefghi"
    whole = letters.client.completions.create(model="tiny", prompt=">", max_tokens=3, temperature=0)
    assert whole.choices[0].text == "abc" and whole.usage is not None and whole.usage.completion_tokens == 3


def test_details_tell_who_guessed_what(letters: Live) -> None:
    _, whole = letters.complete(max_tokens=9, speculative={"depth": 3, "details": True})
    tokens = whole["choices"][0]["speculative"]["tokens"]
    assert bytes(b for token in tokens for b in token["bytes"]) == b"abcdefghi"
    assert [t["origin"] for t in tokens] == ["recovered", *["accepted"] * 3, "bonus", *["accepted"] * 3, "bonus"]
    assert [t["depth"] for t in tokens] == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert all(0.9 < t["probability"] <= 1 for t in tokens)
    usage = whole["usage"]["speculative"]
    assert (usage["num_drafts"], usage["num_draft_tokens"], usage["num_accepted_tokens"]) == (2, 6, 6)
    assert usage["num_passes"] == 3 and usage["mean_acceptance_length"] == 4.0


def test_no_event_has_an_end_of_line_inside() -> None:
    text = "a\u2028b\x85c\u2029"
    event = _data({"text": text})
    assert event.splitlines() == [event[:-2], ""] and json.loads(event.removeprefix("data: ")) == {"text": text}
