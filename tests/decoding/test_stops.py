"""Where a text ends: the same place for every depth."""

from __future__ import annotations

from typing import Any

import pytest

from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.errors import ContextLengthError, ForetellError
from foretell.models.mtp_model import MTPModel
from foretell.types import Completion
from tests.fixtures import EOS, encode, script_trunk, scripted_heads

CHAIN = ">hi😀!<eos>X"  # goes on after EOS, so a decoder that overlooks EOS is seen
ALPHABET = ">abcdefghijklmnopqrstuvwxyz<eos>"
DISTINCT = {"unrolled": False, "num_modules": 3, "num_depths": 3}


def model_of(chain: str, kind: str = "perfect", **config: Any) -> MTPModel:
    trunk = script_trunk(chain)
    return MTPModel(trunk, scripted_heads(trunk, kind, **config))  # type: ignore[arg-type]


def run(model: MTPModel, prompt: str | list[int], depth: int, **params: Any) -> Completion:
    [done] = Engine(model).generate([prompt], SamplingParams(**params), depth=depth)
    assert len(done.origins) == len(done.token_ids)
    assert done.origins[0] == "recovered"  # the first token comes from the prompt's pass
    assert done.origins.count("accepted") == done.stats.num_accepted_tokens
    assert done.num_rounds == len(done.token_ids) - done.stats.num_accepted_tokens or done.origins[-1] == "accepted"
    return done


@pytest.mark.parametrize("depth", range(7))
def test_eos_in_mid_block(depth: int) -> None:
    done = run(model_of(CHAIN), ">", depth)
    assert (done.text, done.finish_reason) == ("hi😀!", "stop")
    assert done.token_ids == encode("hi😀!<eos>")


@pytest.mark.parametrize("depth", range(7))
def test_two_eos_ids(depth: int) -> None:
    model = model_of(CHAIN)
    [bang] = encode("!")
    model.trunk.model.generation_config.eos_token_id = [EOS, bang]
    done = run(model, ">", depth)
    assert (done.text, done.finish_reason) == ("hi😀", "stop")
    assert done.token_ids == encode("hi😀!")


@pytest.mark.parametrize("depth", range(7))
def test_ignore_eos(depth: int) -> None:
    done = run(model_of(">ab<eos>>"), ">", depth, ignore_eos=True, max_tokens=13)
    assert done.token_ids == (encode("ab<eos>>") * 4)[:13]
    assert done.finish_reason == "length"
    assert "<eos>" not in done.text


def test_eos_as_the_last_token_allowed_is_a_stop() -> None:
    for depth in (0, 1, 4):
        assert run(model_of(">ab<eos>"), ">", depth, max_tokens=3).finish_reason == "stop"
        assert run(model_of(">ab<eos>"), ">", depth, max_tokens=2).finish_reason == "length"


@pytest.mark.parametrize("kind", ["perfect", "mixed"])
@pytest.mark.parametrize(
    ("stop", "text", "num_tokens"),
    [
        ("g", "abcdef", 7),
        ("efg", "abcd", 7),  # across tokens, at every offset within an accepted block
        (("xyz", "def", "hij"), "abc", 6),
        (("ijk", "jk"), "abcdefgh", 11),  # both end at the same token: the earlier cut
        ("ba", "abcdefghijklmnopqrstuvwxyz", 27),
    ],
)
def test_stop_strings(kind: str, stop: str | tuple[str, ...], text: str, num_tokens: int) -> None:
    model = model_of(ALPHABET, kind, wrong_after=encode("dhq"))
    for depth in range(7):
        done = run(model, ">", depth, stop=stop)
        assert (done.text, done.finish_reason) == (text, "stop")
        assert done.token_ids == encode(ALPHABET[1:])[:num_tokens]


def test_a_stop_string_inside_a_character_of_many_tokens() -> None:
    for depth in range(7):
        done = run(model_of(">a😀é中!<eos>"), ">", depth, stop="é")
        assert (done.text, done.token_ids) == ("a😀", encode("a😀é"))


def test_a_stop_string_in_the_prompt_does_not_count() -> None:
    done = run(model_of(ALPHABET), "ab>", 3, stop="ab>")
    assert done.text == ALPHABET[1:27]
    done = run(model_of(ALPHABET), ">ab", 3, stop="bc")  # nor does a half of it
    assert done.text == ALPHABET[3:27]


@pytest.mark.parametrize("kind", ["perfect", "wrong"])
@pytest.mark.parametrize("config", [{}, DISTINCT], ids=["unrolled", "distinct"])
def test_max_tokens(kind: str, config: dict[str, Any]) -> None:
    model = model_of(ALPHABET, kind, **config)
    for max_tokens in (1, 2, 3, 6, 27):
        for depth in (0, 1, 3):
            done = run(model, ">", depth, max_tokens=max_tokens)
            assert done.token_ids == encode(ALPHABET[1:])[:max_tokens]
            assert done.finish_reason == ("length" if max_tokens < 27 else "stop")
            assert sum(done.stats.drafted_per_position) == done.stats.num_draft_tokens
            if max_tokens <= 2:  # nothing left to draft for
                assert done.stats.num_drafts == 0


# The end of the window: 64 positions, a text without end


@pytest.mark.parametrize("kind", ["perfect", "wrong"])
@pytest.mark.parametrize("max_positions", [0, 32], ids=["same window", "shorter head"])
def test_the_end_of_the_window(kind: str, max_positions: int) -> None:
    model = model_of("abcdea", kind, max_positions=max_positions)
    for length in (30, 55, 60, 61, 62, 63):
        prompt = (encode("abcde") * 13)[:length]
        for depth in (0, 1, 3, 8):
            done = run(model, prompt, depth, max_tokens=100)
            assert prompt + done.token_ids == (encode("abcde") * 13)[:64]
            assert done.finish_reason == "length"
            if length > 32 and max_positions == 32:
                assert done.stats.num_draft_tokens == 0
    for length in (64, 65):
        for depth in (0, 1, 3, 8):
            with pytest.raises(ContextLengthError, match=rf"{length} tokens and the window holds 64.*at most 63"):
                run(model, (encode("abcde") * 13)[:length], depth)
    assert run(model, "abc", 3, max_tokens=4).text == "deab"  # the next request still works


@pytest.mark.parametrize("config", [{}, DISTINCT], ids=["unrolled", "distinct"])
def test_a_shorter_head_stops_at_its_limit(config: dict[str, Any]) -> None:
    """It drafts no token past its own window, up to it with full acceptance, and decoding goes on."""
    model = model_of("abcdea", max_positions=32, **config)
    done = run(model, "abcd", 3, max_tokens=60)
    drafted = [i for i, origin in enumerate(done.origins) if origin == "accepted"]
    assert done.stats.acceptance_rate == 1.0
    assert 30 <= 4 + drafted[-1] <= 32
    assert done.origins[drafted[-1] + 2 :] == ["recovered"] * (59 - drafted[-1] - 1)


def test_rows_at_the_end_of_the_window_leave_the_others_alone() -> None:
    model = model_of("abcdea", "mixed", wrong_after=encode("b"))
    prompts = [(encode("abcde") * 13)[:n] for n in (63, 3, 61, 58)]
    for depth in (0, 1, 3, 8):
        got = Engine(model, max_batch=4).generate(prompts, SamplingParams(max_tokens=30), depth=depth)
        for prompt, done in zip(prompts, got, strict=True):
            assert prompt + done.token_ids == (encode("abcde") * 13)[: min(64, len(prompt) + 30)]


# What cannot be started


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "prompt 0 is empty"),
        ("", "prompt 0 is empty"),
        ([1, 260], "token id 260 is outside the vocabulary of 260"),
        ([-1], "token id -1 is outside the vocabulary"),
        ([{"role": "user", "content": "hi"}], "no chat template"),
    ],
    ids=str,
)
def test_odd_prompts_are_refused(prompt: Any, message: str) -> None:
    with pytest.raises(ForetellError, match=message):
        run(model_of(ALPHABET), prompt, 1)


def test_one_setting_a_prompt() -> None:
    engine = Engine(model_of(ALPHABET), max_batch=2)
    with pytest.raises(ForetellError, match="1 sampling parameters for 2 prompts"):
        engine.generate([">", "c"], [SamplingParams()])
    each = [SamplingParams(max_tokens=2), SamplingParams(stop="gh")]
    assert [done.text for done in engine.generate([">", "c"], each, depth=2)] == ["ab", "def"]


def test_finished_texts_are_told_as_they_come() -> None:
    engine = Engine(model_of(ALPHABET), max_batch=2)
    told: list[tuple[int, str]] = []
    done = engine.generate(
        [">", "x", "m"], SamplingParams(), depth=1, on_finish=lambda index, c: told.append((index, c.text))
    )
    assert [index for index, _ in told] == [1, 2, 0]
    assert sorted(told) == list(enumerate(c.text for c in done))
    assert engine.generate([]) == []
