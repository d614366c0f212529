"""Rules that fail, and logits that are not numbers: the row they belong to ends, and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.errors import ForetellError, SamplingError
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from tests.fixtures import (
    EOS,
    byte_tokenizer,
    dist_heads,
    dist_trunk,
    encode,
    random_heads,
    script_trunk,
    scripted_heads,
    tiny_llama,
)

Scores = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def late(make: Callable[[torch.Tensor], torch.Tensor]) -> Scores:
    """A processor that does nothing until the text has 8 tokens."""
    return lambda input_ids, scores: make(scores) if input_ids.shape[1] > 8 else scores


def raise_it(scores: torch.Tensor) -> torch.Tensor:
    raise ZeroDivisionError("a bug of the request's own")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"logits_processors": (late(raise_it),)}, "of the request's own"),
        ({"logits_processors": (late(lambda s: torch.full_like(s, -torch.inf)),)}, "logits_processors: returned NaN"),
        ({"logits_processors": (late(lambda s: s * torch.nan),)}, "logits_processors: returned NaN"),
        ({"logits_processors": (late(lambda s: s + torch.inf),)}, "logits_processors: returned NaN"),
        ({"logits_processors": (late(lambda s: s * torch.nan),), "regex": "[a-z]{30}"}, "logits_processors: returned"),
        ({"bad_words": [[i] for i in range(260)], "min_tokens": 5}, "bad_words: no token is left that may follow"),
    ],
    ids=["raises", "nothing left", "nan", "infinite", "nan beside a grammar", "all banned"],
)
def test_a_rule_that_fails_ends_its_own_row(rules: dict[str, Any], message: str, temperature: float) -> None:
    trunk = Trunk(tiny_llama(), byte_tokenizer())
    engine = Engine(MTPModel(trunk, random_heads(trunk)), 3)
    good = SamplingParams(max_tokens=20, ignore_eos=True, temperature=temperature, seed=1)
    bad = SamplingParams(max_tokens=20, temperature=temperature, seed=2, **rules)
    finished: dict[int, Any] = {}
    with pytest.raises((SamplingError, ZeroDivisionError), match=message) as caught:
        engine.generate(
            [[1, 2], [3, 4], [5, 6]],
            [good, bad, good],
            depth=2,
            num_nodes=3,
            on_finish=lambda index, done: finished.setdefault(index, done),
        )
    assert finished.keys() == {0, 2}
    assert caught.value.__notes__ == ["Completions that failed: 1; this is the first one's error."]
    for index, prompt in ((0, [1, 2]), (2, [5, 6])):
        assert len(finished[index].token_ids) == 20
        if not temperature:
            assert finished[index].token_ids == engine.generate([prompt], good)[0].token_ids
    assert all(pool.num_held == 0 for pool in engine._core.pools.values())


def test_a_rule_that_fails_on_a_drafted_path_alone_changes_nothing() -> None:
    """The heads draft tokens that never come; a processor that has no answer to them does what it does plainly."""
    trunk = script_trunk("abcdefghijklmnopqrstuvwxyza", max_positions=100)
    said = encode("abcdefghijklmnopqrstuvwxyz" * 4)

    def knows_one_text(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        assert input_ids[0].tolist() == said[: input_ids.shape[1]]
        return scores

    params = SamplingParams(max_tokens=40, logits_processors=(knows_one_text,))
    for quality in ("wrong", "perfect"):
        engine = Engine(MTPModel(trunk, scripted_heads(trunk, quality)))  # type: ignore[arg-type]
        [chain] = engine.generate([said[:1]], params, depth=3)
        [tree] = engine.generate([said[:1]], params, depth=3, num_nodes=6)  # a wrong branch beside the right one
        assert chain.token_ids == tree.token_ids == said[1:41]
        for done in (chain, tree):
            assert (done.stats.num_accepted_tokens > 0) == (quality == "perfect")


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("ends", ["eos", "stop string"])
def test_what_stands_behind_the_end_of_a_text_is_not_asked(ends: str, depth: int) -> None:
    """Drafts go on behind EOS or a stop string, where a processor with a table of states has no answer."""
    trunk = script_trunk("abcd<eos>" if ends == "eos" else "abcdefghij", max_positions=100)
    trunk.tokenizer = byte_tokenizer()
    next_of = dict(zip(encode("abc"), encode("bcd"), strict=True))
    next_of[encode("d")[0]] = EOS if ends == "eos" else encode("e")[0]
    if ends != "eos":
        next_of[encode("e")[0]] = encode("f")[0]

    def follows_a_table(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        wanted = next_of[int(input_ids[0, -1])]
        return torch.full_like(scores, -torch.inf).index_fill(1, torch.tensor([wanted]), 0.0)

    params = SamplingParams(max_tokens=20, stop=["de"] if ends != "eos" else None, logits_processors=(follows_a_table,))
    engine = Engine(MTPModel(trunk, scripted_heads(trunk, "perfect")))
    [done] = engine.generate([encode("a")], params, depth=depth)
    assert done.finish_reason == "stop"
    assert done.token_ids == (encode("bcd<eos>") if ends == "eos" else encode("bcde"))


def test_a_rule_that_fails_on_some_drafts_keeps_the_law() -> None:
    """Trunk and heads say 1 or 2 with 1/2 each, and a processor fails behind a 2 in second place, drafted or written:
    that is no reason to draw again, and the second token stays a fair coin.
    """
    trunk = dist_trunk({1: 0.5, 2: 0.5})
    heads = dist_heads(trunk, {1: 0.5, 2: 0.5})

    def fails_behind_2(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] > 2 and input_ids[0, 2] == 2:
            raise ZeroDivisionError
        return scores

    engine = Engine(MTPModel(trunk, heads), 64)
    rows = []
    for seed in range(1500):
        params = SamplingParams(max_tokens=3, temperature=1.0, seed=seed, logits_processors=(fails_behind_2,))
        rows += engine._sequences([1], params, 2, 0)
        engine._core.add(rows[-1])
    while not engine._core.is_idle:
        engine._core.advance()
    assert all(row.token_ids[1] == 1 for row in rows if row.error is None)
    assert sum(row.error is not None for row in rows) / len(rows) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_an_error(temperature: float) -> None:
    """Not token 0 without a word, and not the end of rows whose logits are good."""
    model = tiny_llama()
    with torch.no_grad():
        model.model.embed_tokens.weight[70] = torch.nan
    engine = Engine(MTPModel(Trunk(model)), 2)
    params = SamplingParams(max_tokens=5, ignore_eos=True, temperature=temperature, logit_bias={70: -100.0})
    finished: list[int] = []
    with pytest.raises(ForetellError, match="logits are not finite"):
        engine.generate([[1, 70], [3, 4]], params, on_finish=lambda index, done: finished.append(index))
    assert finished == [1]
