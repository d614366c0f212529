"""Trunks with recurrent layers through the whole engine: rejected drafts leave no trace, in any batch."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.errors import UnsupportedModel, UsageError
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Completion
from tests.decoding.test_recurrent import MODELS
from tests.fixtures import random_heads
from tests.lossless.oracle import assert_same_text, script_drafts

SEQUENTIAL = {"qwen3_next", "qwen3_5_text", "lfm2"}
"""Families whose own layer can be a head; the others have Medusa heads."""
PROMPTS = [[1, 2, 3], [5] * 24, [7, 8], [9]]
PARAMS = SamplingParams(max_tokens=24, ignore_eos=True)


@cache
def trunk_of(family: str) -> Trunk:
    return Trunk(MODELS[family]())


@cache
def plain_texts(family: str) -> tuple[Completion, ...]:
    return tuple(Engine(MTPModel(trunk_of(family))).generate(PROMPTS, PARAMS))


def heads_for(family: str) -> Any:
    config = {"unrolled": True, "num_depths": 3} if family in SEQUENTIAL else {"kind": "medusa", "num_depths": 3}
    return random_heads(trunk_of(family), **config)


@pytest.mark.parametrize("family", MODELS)
def test_depth_0_is_the_models_own_text(family: str) -> None:
    """Every token is the argmax of one pass over the whole text."""
    for done in plain_texts(family):
        ids = done.prompt_token_ids + done.token_ids
        with torch.no_grad():
            best = trunk_of(family).model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].argmax(-1).tolist()
        assert_same_text(
            trunk_of(family), done.prompt_token_ids, best[len(done.prompt_token_ids) - 1 : -1], done.token_ids
        )


CASES = [(family, "mixed", 3) for family in MODELS]
CASES += [(family, "wrong", 1) for family in ("qwen3_next", "falcon_h1", "lfm2")]


@pytest.mark.parametrize(("family", "quality", "max_batch"), CASES)
def test_any_draft_keeps_the_text(monkeypatch: pytest.MonkeyPatch, family: str, quality: str, max_batch: int) -> None:
    plain = plain_texts(family)
    script_drafts(monkeypatch, plain, quality)
    model = MTPModel(trunk_of(family), heads_for(family))
    got = Engine(model, max_batch).generate(PROMPTS, PARAMS, depth=3)
    for expected, done in zip(plain, got, strict=True):
        assert_same_text(trunk_of(family), expected.prompt_token_ids, expected.token_ids, done.token_ids)
    num_accepted = sum(done.stats.num_accepted_tokens for done in got)
    assert num_accepted > 24 if quality == "mixed" else num_accepted == 0


@pytest.mark.parametrize("family", ["qwen3_next", "falcon_h1"])
def test_prompts_in_pieces_and_memory_that_is_short(monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    """A row that had to give its state back reads all of its text again."""
    plain = plain_texts(family)
    script_drafts(monkeypatch, plain, "mixed")
    model = MTPModel(trunk_of(family), heads_for(family))
    engine = Engine(model, 3, max_step_tokens=17)
    pool = engine._core.pools["full_attention"]
    taken = [pool.allocate() for _ in range(pool.num_available - 5)]
    got = engine.generate(PROMPTS, PARAMS, depth=3)
    for expected, done in zip(plain, got, strict=True):
        assert_same_text(trunk_of(family), expected.prompt_token_ids, expected.token_ids, done.token_ids)
    assert engine._core.scheduler.num_preemptions > 0
    assert pool.num_held == len(taken)
    recurrent = engine._core.step.cache.recurrent
    assert recurrent is not None and recurrent.num_bytes == 0


def test_a_tree_is_refused() -> None:
    model = MTPModel(trunk_of("qwen3_next"), heads_for("qwen3_next"))
    with pytest.raises(UsageError, match="recurrent layers, which read one branch only"):
        Engine(model).generate(PROMPTS, PARAMS, depth=2, num_nodes=6)


def test_heads_that_cannot_be_copied_from_the_trunk_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="medusa heads"):
        random_heads(trunk_of("falcon_h1"), unrolled=True, num_depths=2)
