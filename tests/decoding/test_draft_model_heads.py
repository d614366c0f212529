"""A draft model that drafts on with its own heads: one pass of it, then its heads, from the second token on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Completion
from tests.fixtures import (
    dist_heads,
    dist_trunk,
    encode,
    random_heads,
    script_trunk,
    scripted_heads,
    scripted_parallel_heads,
    tiny_llama,
)

CHAIN = "abcdefghijklmnopqrstuvwxyza"
KINDS: dict[str, dict[str, Any]] = {
    "unrolled": {},
    "distinct": {"unrolled": False, "num_modules": 3, "num_depths": 3},
    "layer": {"kind": "parallel"},
    "linear": {"kind": "parallel", "block": "linear"},
    "medusa": {"kind": "medusa"},
}


def scripted(kind: str, quality: str) -> MTPModel:
    trunk = script_trunk(CHAIN, max_positions=200)
    make: Any = scripted_heads if "kind" not in KINDS[kind] else scripted_parallel_heads
    return MTPModel(trunk, make(trunk, quality, **KINDS[kind]))


def run(small: MTPModel, depth: int, max_batch: int = 2, num_nodes: int = 0) -> list[Completion]:
    engine = Engine(
        MTPModel(script_trunk(CHAIN, max_positions=200)), max_batch, drafter=DrafterConfig("model", draft_model=small)
    )
    prompts = [encode(text) for text in ("a", "cdefghij", "xyzabc")]
    return engine.generate(prompts, SamplingParams(max_tokens=40), depth=depth, num_nodes=num_nodes)


@pytest.mark.parametrize("num_nodes", [0, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_right_heads_are_always_right(kind: str, num_nodes: int) -> None:
    for done in run(scripted(kind, "perfect"), 4, num_nodes=num_nodes):
        assert done.token_ids == expected(done)
        if not num_nodes:
            assert done.stats.acceptance_rate == 1
        assert done.stats.acceptance_by_depth == [1.0] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_heads_leave_the_draft_models_own_token(kind: str) -> None:
    for done in run(scripted(kind, "wrong"), 3):
        assert done.token_ids == expected(done)
        assert done.stats.acceptance_by_depth == [1.0, 0.0, 0.0]


def expected(done: Completion) -> list[int]:
    letters = encode(CHAIN[:-1])
    start = letters.index(done.prompt_token_ids[-1]) + 1
    return [letters[(start + i) % 26] for i in range(40)]


@pytest.mark.parametrize("num_nodes", [0, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_any_heads_keep_the_text(kind: str, num_nodes: int) -> None:
    trunk, small = Trunk(tiny_llama()), Trunk(tiny_llama())
    drafter = DrafterConfig("model", MTPModel(small, random_heads(small, **KINDS[kind])))
    prompts = [[1, 2, 3], [5] * 40, [7, 8]]
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    plain = Engine(MTPModel(trunk)).generate(prompts, params)
    alone = [Engine(MTPModel(trunk), drafter=drafter).generate([p], params, 3, num_nodes=num_nodes)[0] for p in prompts]
    got = Engine(MTPModel(trunk), 3, drafter=drafter).generate(prompts, params, depth=3, num_nodes=num_nodes)
    for expected_text, single, done in zip(plain, alone, got, strict=True):
        assert done.token_ids == expected_text.token_ids
        assert done.stats == single.stats  # the batch changes nothing
        assert done.stats.acceptance_by_depth[0] == 1  # the same weights: its own token is the trunk's


def test_the_law_of_samples_is_the_trunks() -> None:
    p, q = {1: 0.5, 2: 0.3, 3: 0.15, 4: 0.05}, {1: 0.4, 2: 0.1, 3: 0.3, 4: 0.2}
    small = dist_trunk(q)
    drafter = DrafterConfig("model", MTPModel(small, dist_heads(small, q)))
    engine = Engine(MTPModel(dist_trunk(p)), 32, drafter=drafter)
    params = [SamplingParams(max_tokens=26, temperature=1.0, seed=seed) for seed in range(400)]
    done = engine.generate([[0]] * len(params), params, depth=3)
    tokens = torch.tensor([t for d in done for t in d.token_ids[1:]])
    counted = [float((tokens == t).float().mean()) for t in p]
    assert sum(abs(a - b) for a, b in zip(counted, p.values(), strict=True)) / 2 < 0.02
