"""Greedy equality with drafters other than heads: the text is the trunk's own, whoever guesses."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.decoding.sequence import Sequence as Row
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Completion
from tests.fixtures import FAMILIES, encode, random_heads, script_trunk, scripted_heads, tiny_llama
from tests.lossless.oracle import assert_same_text

KINDS = ("ngram", "model", "ngram+heads", "ngram+model")
MAX_TOKENS = [34, 9, 4, 14, 40]
generator = torch.Generator().manual_seed(7)


def drawn(num_tokens: int) -> list[int]:
    return torch.randint(0, 256, (num_tokens,), generator=generator).tolist()


@cache
def trunk_of(family: str) -> Trunk:
    return Trunk(FAMILIES[family]())


@cache
def near(family: str) -> Trunk:
    """The trunk with some noise on its weights: a draft model that is right at times."""
    model = FAMILIES[family]()
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=noise) * parameter.std() * 0.15)
    return Trunk(model)


@cache
def prompts_of(family: str) -> list[list[int]]:
    """Two hold the beginning of a text that the trunk goes on to write, so that look-up is right at times."""
    beginnings = [drawn(n) for n in (12, 1, 3, 11, 5)]
    model = MTPModel(trunk_of(family))
    texts = Engine(model, 5).generate(beginnings, SamplingParams(max_tokens=20, ignore_eos=True))
    for i in (0, 4):
        beginnings[i] = beginnings[i] + texts[i].token_ids + drawn(2) + beginnings[i] + texts[i].token_ids[:4]
    return beginnings


def engine_of(family: str, kind: Any, max_batch: int, heads: dict[str, Any] | None = None) -> Engine:
    model = MTPModel(trunk_of(family), random_heads(trunk_of(family), **heads or {}) if "heads" in kind else None)
    return Engine(model, max_batch, DrafterConfig(kind, MTPModel(near(family)) if "model" in kind else None))


def generate(engine: Engine, family: str, depth: int, **params: Any) -> list[Completion]:
    each = [SamplingParams(**{"max_tokens": n, "ignore_eos": True} | params) for n in MAX_TOKENS]
    return engine.generate(prompts_of(family), each, depth=depth)


@cache
def plain_texts(family: str) -> list[Completion]:
    return generate(Engine(MTPModel(trunk_of(family))), family, depth=0)


@pytest.mark.parametrize("depth", [1, 3, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_alone_and_in_a_batch(kind: str, depth: int) -> None:
    """Rows of different length join and leave; accepted counts do not depend on the neighbours."""
    alone, pairs, together = (generate(engine_of("llama", kind, n), "llama", depth) for n in (1, 2, 5))
    for plain, *others in zip(plain_texts("llama"), alone, pairs, together, strict=True):
        for done in others:
            assert (done.token_ids, done.finish_reason) == (plain.token_ids, plain.finish_reason)
            assert (done.stats, done.num_rounds, done.origins) == (
                others[0].stats,
                others[0].num_rounds,
                others[0].origins,
            )
    assert 0 < sum(c.stats.num_accepted_tokens for c in alone) < sum(c.stats.num_draft_tokens for c in alone)


@pytest.mark.parametrize("kind", ["ngram+heads", "ngram+model"])
@pytest.mark.parametrize("family", ["mistral", "gemma2", "deepseek_v3"])
def test_other_families(family: str, kind: str) -> None:
    heads = {"unrolled": False, "num_modules": 3} if family == "mistral" else {"kind": "parallel"}
    for plain, done in zip(plain_texts(family), generate(engine_of(family, kind, 3, heads), family, 3), strict=True):
        assert_same_text(trunk_of(family), plain.prompt_token_ids, plain.token_ids, done.token_ids)


@pytest.mark.parametrize("kind", ["model", "ngram+model"])
def test_eos_in_the_middle_of_a_block(kind: str) -> None:
    """Tokens that were accepted with others behind them are declared to be EOS; other rows join in the free slots."""
    free = engine_of("llama", kind, 1)
    ends = [token for text in generate(free, "llama", 4) for token in inner_tokens(text)[:1]]
    trunk = Trunk(tiny_llama())
    trunk.model.generation_config.eos_token_id = ends
    each = [SamplingParams(max_tokens=n) for n in MAX_TOKENS * 2]
    prompts = prompts_of("llama") * 2
    expected = Engine(MTPModel(trunk)).generate(prompts, each)
    assert {text.finish_reason for text in expected} == {"stop", "length"}
    for max_batch in (1, 3, 10):
        got = Engine(MTPModel(trunk), max_batch, free.drafter).generate(prompts, each, depth=4)
        assert [text.token_ids for text in got] == [text.token_ids for text in expected]
        assert [text.finish_reason for text in got] == [text.finish_reason for text in expected]
        assert any(text.origins[-1] == "accepted" for text in got if text.finish_reason == "stop")


@pytest.mark.parametrize("kind", ["ngram", "ngram+heads"])
def test_a_look_up_that_runs_past_eos(kind: Any) -> None:
    """The prompt holds the text, its end and more, so that all of it is drafted at once."""
    trunk = script_trunk(">abcdefghijklm<eos>")
    model = MTPModel(trunk, scripted_heads(trunk, "wrong"))
    prompts = [encode(text) for text in (">abcdefghijklm<eos>123>ab", "xx>", "klm<eos>12h", "lm<eos>12l")]
    expected = Engine(model).generate(prompts)
    assert [text.text for text in expected] == ["cdefghijklm", "abcdefghijklm", "ijklm", "m"]
    for max_batch in (1, 3):
        got = Engine(model, max_batch, kind).generate(prompts, depth=7)
        assert [text.token_ids for text in got] == [text.token_ids for text in expected]
        assert {text.finish_reason for text in got} == {"stop"}
        assert [text.origins[-1] for text in got] == ["accepted", "recovered", "accepted", "accepted"]


def inner_tokens(text: Completion) -> list[int]:
    """New tokens of a text that were accepted together with the next one."""
    ids, origins = text.token_ids, text.origins
    return [
        ids[i] for i in range(len(ids) - 1) if origins[i] == origins[i + 1] == "accepted" and ids.index(ids[i]) == i
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_up_to_the_end_of_the_window(kind: str) -> None:
    trunk = Trunk(tiny_llama(max_position_embeddings=48))
    model = MTPModel(trunk, random_heads(trunk) if "heads" in kind else None)
    prompts = [drawn(20) * 2, [9, 9, 9], drawn(44)]
    params = SamplingParams(max_tokens=100, ignore_eos=True)
    expected = Engine(model).generate(prompts, params)
    assert [len(text.token_ids) for text in expected] == [8, 45, 4]
    config = DrafterConfig(kind, MTPModel(trunk) if "model" in kind else None)  # type: ignore[arg-type]
    for max_batch in (1, 3):
        got = Engine(model, max_batch, config).generate(prompts, params, depth=4)
        assert [text.token_ids for text in got] == [text.token_ids for text in expected]
        assert sum(text.stats.num_draft_tokens for text in got) > 10


@pytest.mark.parametrize("kind", KINDS)
def test_depths_0_to_4_side_by_side(kind: str) -> None:
    plain, prompts = plain_texts("llama"), prompts_of("llama")
    each = [SamplingParams(max_tokens=n, ignore_eos=True) for n in MAX_TOKENS]
    done = engine_of("llama", kind, 5).generate(prompts, each, depth=[0, 1, 2, 3, 4])
    assert [c.token_ids for c in done] == [text.token_ids for text in plain]
    deepest = [len(c.stats.drafted_per_position) for c in done]
    assert deepest[0] == 0 and deepest[4] == 4 and all(d <= depth for depth, d in enumerate(deepest))


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_draws_no_random_number(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[tuple[torch.Tensor, torch.Tensor]] = []
    completion = Row.completion

    def watched(self: Row) -> Completion:
        states.append((self.generator.get_state(), torch.Generator().manual_seed(3).get_state()))
        return completion(self)

    monkeypatch.setattr(Row, "completion", watched)
    before = torch.get_rng_state()
    generate(engine_of("llama", kind, 4), "llama", 3, seed=3)
    assert len(states) == len(MAX_TOKENS) and all(torch.equal(*pair) for pair in states)
    assert torch.equal(torch.get_rng_state(), before)
