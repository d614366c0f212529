"""Steps, rows and callbacks that fail: what is left of them, and what it does to those that did not."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.errors import ForetellError, UsageError
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from tests.fixtures import random_heads, tiny_llama, tiny_mistral

PARAMS = SamplingParams(max_tokens=12, ignore_eos=True)
PROMPTS = [[1, 2], [3, 4], [5, 6, 7]]


def llama(**config: Any) -> MTPModel:
    trunk = Trunk(tiny_llama(**config))
    return MTPModel(trunk, random_heads(trunk))


def draft_model() -> DrafterConfig:
    return DrafterConfig("model", draft_model=llama(num_hidden_layers=1))


def plain(prompts: list[list[int]], **params: Any) -> list[list[int]]:
    done = Engine(MTPModel(llama().trunk)).generate(prompts, SamplingParams(ignore_eos=True, **params))
    return [d.token_ids for d in done]


def assert_empty(engine: Engine) -> None:
    assert engine._core.is_idle
    assert all(pool.num_held == 0 for pool in engine._core.pools.values())


@pytest.mark.parametrize("drafter", [None, draft_model()], ids=["heads", "draft model"])
def test_a_step_that_fails_once_costs_nothing_but_time(monkeypatch: pytest.MonkeyPatch, drafter: Any) -> None:
    """Drafters have moved on when the trunk's pass fails; the rows are read anew, and write the same."""
    engine = Engine(llama(), 3, drafter)
    trunk, calls = engine.model.trunk, 0
    states = trunk.states

    def fails_once(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 9:
            raise MemoryError("once")
        return states(*args, **more)

    monkeypatch.setattr(trunk, "states", fails_once)
    rows = [row for prompt in PROMPTS for row in engine._sequences(prompt, PARAMS, 2, 0, "")]
    for row in rows:
        engine._core.add(row)
    num_failed = 0
    while not engine._core.is_idle:
        try:
            engine._core.advance()
        except MemoryError:
            num_failed += 1
    assert num_failed == 1
    assert [row.token_ids for row in rows] == plain(PROMPTS, max_tokens=12)
    assert all(row.stats.num_draft_tokens for row in rows)
    assert_empty(engine)


def test_a_callback_that_fails_ends_the_call_alone() -> None:
    engine = Engine(llama(), 2)

    def fails(index: int, done: Any) -> None:
        raise ValueError(f"callback {index}")

    with pytest.raises(ValueError, match="callback"):
        engine.generate(PROMPTS, SamplingParams(max_tokens=4, ignore_eos=True), depth=2, on_finish=fails)
    assert_empty(engine)
    assert [d.token_ids for d in engine.generate(PROMPTS, PARAMS, depth=2)] == plain(PROMPTS, max_tokens=12)


def test_a_callback_may_use_the_engine() -> None:
    engine = Engine(llama())
    texts = []

    def again(index: int, done: Any) -> None:
        texts.append(engine.generate([PROMPTS[1]], PARAMS)[0].token_ids)

    thread = threading.Thread(target=lambda: engine.generate([PROMPTS[0]], PARAMS, on_finish=again), daemon=True)
    thread.start()
    thread.join(60)
    assert texts == plain([PROMPTS[1]], max_tokens=12)


def test_what_is_no_number_stays_where_it_was() -> None:
    """The next row gets the blocks of a row whose entries are NaN; masked ones count too, as 0 * NaN."""
    model = llama()
    bad = [*range(100, 120), 70, *range(120, 130)]
    engine = Engine(model)
    good = [1, 2]
    expected = [d.token_ids for d in Engine(model).generate([good], PARAMS, depth=2)]
    with torch.no_grad():
        model.trunk.model.model.embed_tokens.weight[70] = torch.nan
    for depth in (0, 2):
        with pytest.raises(ForetellError, match="not finite"):
            engine.generate([bad], SamplingParams(max_tokens=4, logit_bias={70: -100.0}), depth=depth)
        done = engine.generate([good], SamplingParams(max_tokens=12, ignore_eos=True), depth=depth)
        assert [d.token_ids for d in done] == expected
    assert_empty(engine)


@pytest.mark.parametrize("max_step_tokens", [16, 512])
def test_what_is_no_number_is_found_while_a_prompt_is_read(max_step_tokens: int) -> None:
    """Sliding layers give blocks back before the prompt is read to its end."""
    trunk = Trunk(tiny_mistral())
    model, good = MTPModel(trunk, random_heads(trunk)), [3, 4]
    engine = Engine(model, max_step_tokens=max_step_tokens, reuse_prefixes=False)
    expected = engine.generate([good], PARAMS, 2)[0].token_ids
    bad = [*range(100, 110), 70, *range(110, 190)]
    with torch.no_grad():
        trunk.model.model.embed_tokens.weight[70] = torch.nan
    with pytest.raises(ForetellError, match="not finite"):
        engine.generate([bad], SamplingParams(max_tokens=4, logit_bias={70: -100.0}), depth=2)
    [row] = engine._sequences(bad, SamplingParams(max_tokens=4), 2, 0)
    engine._core.add(row)
    engine._core.advance()
    engine._core.abort(row)
    for _ in range(4):
        assert engine.generate([good], SamplingParams(max_tokens=12, ignore_eos=True), 2)[0].token_ids == expected


def test_rows_that_end_in_a_step_that_fails_are_told() -> None:
    """And what stands in their log-probabilities belongs to their tokens."""
    engine = Engine(llama(), 2)
    params = [SamplingParams(max_tokens=n, ignore_eos=True, logprobs=0) for n in (4, 12)]
    rows = [engine._sequences(prompt, p, 2, 0)[0] for prompt, p in zip(PROMPTS, params, strict=False)]
    told: list[str | None] = []
    for row in rows:
        row.on_step = lambda row: told.append(row.finish_reason)
        engine._core.add(row)
    commit, num_failed = rows[1].commit, 0

    def fails_once(*args: Any) -> int:
        nonlocal num_failed
        if rows[0].finish_reason and not num_failed:
            num_failed += 1
            raise KeyboardInterrupt
        return commit(*args)

    rows[1].commit = fails_once  # type: ignore[method-assign]
    while not engine._core.is_idle:
        with contextlib.suppress(KeyboardInterrupt):
            engine._core.advance()
    assert num_failed == 1 and told.count("length") == 2
    for row, prompt, p in zip(rows, PROMPTS, params, strict=False):
        [alone] = Engine(engine.model).generate([prompt], p, 2)
        done = row.completion()
        assert done.token_ids == alone.token_ids
        assert [round(e.logprob, 3) for e in done.logprobs or ()] == [round(e.logprob, 3) for e in alone.logprobs or ()]


def test_rows_that_have_no_room_are_no_prompts_of_the_step() -> None:
    """The policy measures and probes beside rows that wait for memory."""
    engine = Engine(llama(), 4, memory_budget=190_000)
    seen = []
    choose = engine._core.depths.policy.choose

    def heard(views: Any, num_other_nodes: int = 0) -> Any:
        seen.append((len(views), num_other_nodes))
        return choose(views, num_other_nodes)

    engine._core.depths.policy.choose = heard  # type: ignore[method-assign]
    params = SamplingParams(max_tokens=60, ignore_eos=True)
    engine.generate([[i] * 40 for i in range(1, 6)], params, depth="auto")
    waiting = [others for rows, others in seen if rows < 4]
    assert engine._core.scheduler.num_preemptions or waiting
    assert sum(others == 0 for _, others in seen) > 0.8 * len(seen)


@pytest.mark.parametrize("num_nodes", [0, 6])
def test_heads_that_are_no_numbers_guess_badly(num_nodes: int) -> None:
    model = llama()
    with torch.no_grad():
        for parameter in model.heads.parameters():  # type: ignore[union-attr]
            parameter.fill_(torch.nan)
    hot = SamplingParams(max_tokens=12, ignore_eos=True, temperature=1.0, seed=3)
    sampled, greedy = Engine(model, 2).generate(PROMPTS[:2], [hot, PARAMS], depth=[2, 0], num_nodes=num_nodes)
    assert len(sampled.token_ids) == 12 and sampled.stats.num_draft_tokens > 0
    assert [greedy.token_ids] == plain(PROMPTS[1:2], max_tokens=12)
    assert Engine(model).generate([PROMPTS[0]], PARAMS, 2)[0].token_ids == plain(PROMPTS[:1], max_tokens=12)[0]


def test_engines_in_two_threads_may_share_a_model() -> None:
    model, expected, texts = llama(), plain(PROMPTS, max_tokens=12), []

    def work() -> None:
        engine = Engine(model, 2)
        for _ in range(4):
            texts.append([d.token_ids for d in engine.generate(PROMPTS, PARAMS, depth=2)])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [expected] * 12


def test_a_prompt_is_read_beside_rows_that_draft() -> None:
    """Drafts would take the whole budget of every step."""
    engine = Engine(llama(), 2, max_step_tokens=9)
    first, second = (
        engine._sequences(list(range(1, n)), SamplingParams(max_tokens=200, ignore_eos=True), 8, 0, "")[0]
        for n in (5, 100)
    )
    engine._core.add(first)
    while not first.token_ids:
        engine._core.advance()
    engine._core.add(second)
    for _ in range(40):
        engine._core.advance()
    assert second.token_ids and first.stats.num_draft_tokens > 60


def test_a_tree_that_has_no_room_becomes_a_chain() -> None:
    trunk = Trunk(tiny_llama(max_position_embeddings=128))
    heads = random_heads(trunk, unrolled=False, num_modules=3, num_depths=3)
    [done] = Engine(MTPModel(trunk, heads)).generate([list(range(60))], PARAMS, depth=3, num_nodes=120)
    assert done.stats.num_drafts == done.num_rounds - 2  # not the prompt, not the last token


@pytest.mark.parametrize("unrolled", [True, False])
def test_a_long_prompt_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch, unrolled: bool) -> None:
    """By drafters too; what they draft is the same."""
    trunk = Trunk(tiny_llama(max_position_embeddings=400))
    heads = random_heads(trunk, unrolled=unrolled, num_modules=1 if unrolled else 3, num_depths=3)
    small = llama(num_hidden_layers=1)
    drafters = [None, *(DrafterConfig("model", draft_model=draft) for draft in (small, MTPModel(small.trunk)))]
    prompt, params = [i * 7 % 250 for i in range(200)], SamplingParams(max_tokens=8, ignore_eos=True)
    for drafter in drafters:
        done = []
        for piece in (512, 32):
            for name in ("sequential_drafter", "model_drafter"):
                monkeypatch.setattr(f"foretell.decoding.{name}.PIECE", piece)
            done += Engine(MTPModel(trunk, heads), drafter=drafter).generate([prompt], params, depth=3)
        assert done[0].token_ids == done[1].token_ids
        assert done[0].stats == done[1].stats


def test_a_draft_model_with_windows_and_heads() -> None:
    """Of a trunk without windows."""
    trunk = Trunk(tiny_mistral())
    drafter = DrafterConfig("model", draft_model=MTPModel(trunk, random_heads(trunk)))
    done = Engine(llama(), 2, drafter).generate(PROMPTS, PARAMS, depth=3)
    assert [d.token_ids for d in done] == plain(PROMPTS, max_tokens=12)


@pytest.mark.parametrize("max_step_tokens", [8, 512])
def test_prompt_logprobs_of_a_prompt_in_chunks(max_step_tokens: int) -> None:
    params = SamplingParams(max_tokens=2, prompt_logprobs=0)
    [done] = Engine(llama(), max_step_tokens=max_step_tokens).generate([list(range(50))], params, depth=2)
    assert done.prompt_logprobs is not None and len(done.prompt_logprobs) == 50


def test_a_budget_counts_sliding_layers_and_drafters() -> None:
    with pytest.raises(UsageError, match=r"a memory budget of 1,000 bytes is too small: .* for sliding windows and 0"):
        Engine(MTPModel(Trunk(tiny_mistral())), memory_budget=1000)
    plain_model, with_heads = MTPModel(llama().trunk), llama()
    config = DrafterConfig("heads")
    one_layer = 2 * 16 * 64 * 4 // 2  # keys and values, 16 entries, 2 of 4 heads, fp32
    assert config.block_num_bytes(with_heads) == one_layer
    assert DrafterConfig("model", draft_model=plain_model).block_num_bytes(plain_model) == 2 * one_layer
    assert DrafterConfig("model", draft_model=with_heads).block_num_bytes(plain_model) == 3 * one_layer


def test_a_processor_that_leaves_python_leaves_the_engine_running() -> None:
    def leaves(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        raise SystemExit(7)

    engine = Engine(llama(), 2)

    async def read(prompt: list[int], params: SamplingParams) -> list[int]:
        return [token_id async for chunk in engine.stream(prompt, params, 2) for token_id in chunk.token_ids]

    async def both() -> list[Any]:
        bad = SamplingParams(max_tokens=5, logits_processors=(leaves,))

        async def fails() -> str:
            try:
                return str(await read([9], bad))
            except SystemExit as error:  # a task must not carry it to the loop
                return f"exit {error.code}"

        first = await asyncio.gather(read(PROMPTS[0], PARAMS), fails())
        return [*first, await read(PROMPTS[1], PARAMS)]

    one, failed, later = asyncio.run(asyncio.wait_for(both(), 60))
    assert failed == "exit 7"
    assert [one, later] == plain(PROMPTS[:2], max_tokens=12)
    assert_empty(engine)


def test_a_stream_that_is_cancelled_at_once_leaves_nothing() -> None:
    """While the request is still on its way to the engine, which is busy with a step."""
    engine = Engine(llama())

    async def cancel() -> None:
        stream = engine.stream([1, 2], SamplingParams(max_tokens=100, ignore_eos=True))
        with engine._lock:
            reader = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.05)
            reader.cancel()
            await asyncio.sleep(0.05)
        with pytest.raises(asyncio.CancelledError):
            await reader
        await asyncio.sleep(0.1)

    asyncio.run(asyncio.wait_for(cancel(), 60))
    assert_empty(engine)
    assert not engine._worker._listeners
