"""What an engine is given: one clear line for everything that cannot be, and a word where nothing will be drafted."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest
import torch

import foretell
from foretell.config import SamplingParams
from foretell.decoding.blocks import FULL
from foretell.decoding.engine import Engine
from foretell.decoding.memory import block_num_bytes, heads_block_num_bytes
from foretell.errors import PlainDecodingWarning, UsageError
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from tests.fixtures import byte_tokenizer, random_heads, tiny_llama


@pytest.fixture(scope="module")
def model() -> MTPModel:
    trunk = Trunk(tiny_llama(), byte_tokenizer())
    return MTPModel(trunk, random_heads(trunk))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": None}, "model is None; give what foretell.load returns"),
        ({"model": "demo"}, "model is 'demo'"),
        ({"max_batch": 0}, "max_batch is 0; give an integer of at least 1"),
        ({"max_batch": 2.0}, "max_batch is 2.0"),
        ({"max_step_tokens": True}, "max_step_tokens is True"),
        ({"memory_budget": "1GB"}, "memory_budget is '1GB'; give an integer"),
        ({"memory_budget": 1e9}, "memory_budget is 1000000000.0"),
        ({"memory_budget": 5000}, "a memory budget of 5,000 bytes is too small: .* for drafts and the first 16 tokens"),
        ({"reuse_prefixes": "no"}, "reuse_prefixes is 'no'; give True or False"),
        ({"exact": 1}, "exact is 1; give True or False"),
        ({"max_batch": 8, "max_step_tokens": 4}, "max_step_tokens 4 is less than max_batch 8"),
    ],
    ids=str,
)
def test_engines_that_cannot_be(model: MTPModel, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Engine(**{"model": model, **options})


def test_the_smallest_budget_that_is_taken_decodes(model: MTPModel) -> None:
    def engine_of(budget: int) -> Engine | None:
        try:
            return Engine(model, memory_budget=budget)
        except UsageError:
            return None

    budgets = range(1000, 200_000, 1000)
    engine = next(found for budget in budgets if (found := engine_of(budget)))
    assert len(engine.generate([[1, 2]], SamplingParams(max_tokens=4, ignore_eos=True), 2)[0].token_ids) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompts": None}, "prompts is one NoneType; give a list of prompts"),
        ({"prompts": "hello"}, "prompts is one str"),
        ({"prompts": {"a"}}, "prompts is one set"),
        ({"prompts": [["a", "b"]]}, "prompt 0 is a list with 'a' in it; give text, a list of token ids, or"),
        ({"prompts": [[1, True]]}, "prompt 0 is a list with True in it"),
        ({"prompts": ["a\ud800"]}, "prompt 0 is no valid text .surrogates not allowed at character 1"),
        ({"params": []}, "0 sampling parameters for 1 prompts"),
        ({"params": "hot"}, "sampling parameters of prompt 0 are 'hot'"),
        ({"on_finish": 5}, "on_finish is 5; give a function of"),
        ({"label": {}}, "label is {}; give text"),
        ({"depth": -1}, "depth -1 is not allowed"),
        ({"depth": "deep"}, "depth 'deep' is not allowed; give an integer of at least 0 .*, or \"auto\""),
        ({"depth": 1, "num_nodes": 2.0}, "num_nodes 2.0 is not allowed"),
        ({"depth": 4, "num_nodes": 2}, "num_nodes 2 is less than depth 4, .*; give at least 4"),
        ({"depth": 0, "num_nodes": 8}, "num_nodes 8: nothing is drafted here"),
    ],
    ids=str,
)
def test_requests_that_cannot_be(model: MTPModel, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Engine(model).generate(**{"prompts": [[1, 2]], **options})


def test_prompts_may_come_one_by_one(model: MTPModel) -> None:
    params = SamplingParams(max_tokens=3)
    done = Engine(model).generate(([n, 5] for n in (1, 2)), params)  # type: ignore[arg-type]
    assert [d.token_ids for d in done] == [d.token_ids for d in Engine(model).generate([[1, 5], [2, 5]], params)]


def test_a_stream_takes_one_set_of_parameters(model: MTPModel) -> None:
    async def first(params: Any) -> None:
        await anext(Engine(model).stream([1, 2], params))

    with pytest.raises(UsageError, match="sampling parameters of the prompt are"):
        asyncio.run(first([SamplingParams()]))
    with pytest.raises(UsageError, match="n is 2, and a stream is one completion; use streams"):
        asyncio.run(first(SamplingParams(n=2)))


def test_auto_without_a_drafter_says_so() -> None:
    plain = MTPModel(Trunk(tiny_llama()))
    with pytest.warns(PlainDecodingWarning, match="depth auto is plain decoding"):
        Engine(plain).generate([[1, 2]], SamplingParams(max_tokens=2), depth="auto")
    with pytest.raises(UsageError, match="num_nodes 8: nothing is drafted here; give heads"), warnings.catch_warnings():
        warnings.simplefilter("ignore", PlainDecodingWarning)
        Engine(plain).generate([[1, 2]], depth="auto", num_nodes=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trunk": None}, "trunk is None; give a model folder"),
        ({"trunk": 5}, "trunk is 5; give a folder"),
        ({"trunk": "demo", "heads": 5}, "heads is 5; give a folder"),
        ({"trunk": "demo", "dtype": torch.int8}, "dtype torch.int8 is not allowed; give auto, float32"),
        ({"trunk": "demo", "dtype": 8}, "dtype 8 is not allowed"),
        ({"trunk": "demo", "device_map": 0}, "device_map 0 is not allowed; give auto, .* or a dict"),
        ({"trunk": "demo", "device_map": ["cpu"]}, "device_map \\['cpu'\\] is not allowed"),
    ],
    ids=str,
)
def test_models_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        foretell.load(**options)


def test_a_watcher_can_be_taken_off(model: MTPModel) -> None:
    engine, steps = Engine(model), []
    with pytest.raises(UsageError, match="on_step is 5; give a function"):
        engine.watch(5)  # type: ignore[arg-type]
    stop = engine.watch(lambda works, times: steps.append(len(works)))
    engine.generate([[1, 2]], SamplingParams(max_tokens=3, ignore_eos=True))
    num_steps = len(steps)
    stop()
    engine.generate([[1, 2]], SamplingParams(max_tokens=3, ignore_eos=True))
    assert len(steps) == num_steps == 3


@pytest.mark.parametrize("has_heads", [False, True])
def test_what_keys_and_values_may_come_to_is_the_budget_but_for_a_block(has_heads: bool) -> None:
    trunk = Trunk(tiny_llama(), byte_tokenizer())
    model = MTPModel(trunk, random_heads(trunk) if has_heads else None)
    per_block = sum(block_num_bytes(trunk).values()) + (heads_block_num_bytes(model.heads) if has_heads else 0)
    budget = 40 * per_block + 7
    engine = Engine(model, 64, memory_budget=budget)
    assert (engine._core.pools[FULL].num_blocks, engine.cache_num_bytes) == (40, 40 * per_block)
