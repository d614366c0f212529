"""Engine.stream: chunks join to the completion, many at a time, and whoever leaves takes nothing along."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from foretell.config import SamplingParams
from foretell.decoding import worker
from foretell.decoding.engine import Engine
from foretell.decoding.worker import Chunk
from foretell.errors import ContextLengthError, UsageError
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from tests.decoding.pooled import assert_partition
from tests.fixtures import byte_tokenizer, encode, random_heads, script_trunk, scripted_heads, tiny_llama

CHAIN = ">a😀é中!<eos>X"
ALPHABET = ">abcdefghijklmnopqrstuvwxyz>"


def engine_of(chain: str, kind: Any = "perfect", max_batch: int = 4, **config: Any) -> Engine:
    trunk = script_trunk(chain, max_positions=256)
    return Engine(MTPModel(trunk, scripted_heads(trunk, kind, **config)), max_batch)


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """An event loop of its own; a stream that hangs is a failure, not a wait."""
    return asyncio.run(asyncio.wait_for(coroutine, 30))


async def collect(engine: Engine, prompt: Any, depth: int = 0, num_nodes: int = 0, **params: Any) -> list[Chunk]:
    return [chunk async for chunk in engine.stream(prompt, SamplingParams(**params), depth, num_nodes)]


def assert_joined(chunks: list[Chunk]) -> None:
    """All but the last are parts, and the parts are the completion."""
    done = chunks[-1].completion
    assert done is not None and chunks[-1].finish_reason == done.finish_reason
    assert all(chunk.completion is None and chunk.finish_reason is None for chunk in chunks[:-1])
    assert all(chunk.token_ids for chunk in chunks)
    assert [t for chunk in chunks for t in chunk.token_ids] == done.token_ids
    assert "".join(chunk.text for chunk in chunks) == done.text


def assert_all_is_given_back(engine: Engine) -> None:
    with engine._lock:
        assert engine._core.is_idle
        for pool in engine._core.pools.values():
            assert_partition(pool, [])
        drafter: Any = engine._core.step.drafter
        assert drafter is None or not drafter._rows


@pytest.mark.parametrize("kind", ["perfect", "wrong"])
@pytest.mark.parametrize("depth", [0, 1, 2, 3, 5])
def test_characters_of_many_tokens_come_whole(depth: int, kind: str) -> None:
    chunks = run(collect(engine_of(CHAIN, kind), ">", depth))
    assert_joined(chunks)
    assert chunks[-1].completion.text == "a😀é中!" and chunks[-1].finish_reason == "stop"
    assert chunks[-1].completion.token_ids == encode("a😀é中!<eos>")
    assert not any("\ufffd" in chunk.text for chunk in chunks)
    assert chunks[0].text == "a"  # plain letters are not delayed
    if depth == 0 or kind == "wrong":
        assert [chunk.text for chunk in chunks if chunk.text] == ["a", "😀", "é", "中", "!"]
        assert all(len(chunk.token_ids) == 1 for chunk in chunks)


@pytest.mark.parametrize("max_tokens", range(1, 12))
def test_a_cut_inside_a_character_is_that_of_generate(max_tokens: int) -> None:
    for depth in (0, 3):
        engine = engine_of(CHAIN)
        chunks = run(collect(engine, ">", depth, max_tokens=max_tokens))
        assert_joined(chunks)
        [done] = engine.generate([">"], SamplingParams(max_tokens=max_tokens), depth=depth)
        assert (done.text, done.finish_reason) == (chunks[-1].completion.text, chunks[-1].finish_reason)
        assert not any("\ufffd" in chunk.text for chunk in chunks[:-1])


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ("efg", "abcd"),
        (("xyz", "hij"), "abcdefg"),
        ("bcdefghijklmnopqrstuvw", "a"),
        ("fgX", "abcdefghijklmnopqrstuvwxyz>abc"),
    ],
)
def test_stop_strings_never_leak(depth: int, stop: Any, text: str) -> None:
    """Not even their beginning, which waits until it is known to be none."""
    chunks = run(collect(engine_of(ALPHABET), ">", depth, stop=stop, max_tokens=30))
    assert_joined(chunks)
    assert chunks[-1].completion.text == text
    stops = (stop,) if isinstance(stop, str) else stop
    shown = ""
    for chunk in chunks:
        shown += chunk.text
        assert text.startswith(shown) and not any(s in shown for s in stops)
    if depth == 0 and stop == "fgX":
        assert [chunk.text for chunk in chunks[4:8]] == ["e", "", "", "fgh"]


def test_many_streams_share_the_steps() -> None:
    """More than there is room for, of every depth; each has the text that it has alone."""
    engine = engine_of(ALPHABET, "mixed", max_batch=3, wrong_after=encode("cdjrstx"))
    prompts = ["0" * n + start for n, start in enumerate(">bksy>")]
    params = [{"max_tokens": 20 + n} for n in range(4)] + [{"temperature": 6.0, "seed": n} for n in (1, 2)]
    depths = [0, 1, 2, 3, 3, 0]

    async def all_of_them() -> list[list[Chunk]]:
        parts = zip(prompts, depths, params, strict=True)
        return await asyncio.gather(*(collect(engine, prompt, depth, **p) for prompt, depth, p in parts))

    streams = run(all_of_them())
    for prompt, depth, p, chunks in zip(prompts, depths, params, streams, strict=True):
        assert_joined(chunks)
        [expected] = Engine(engine.model).generate([prompt], SamplingParams(**p), depth=depth)  # type: ignore[arg-type]
        assert chunks[-1].completion == expected
    assert_all_is_given_back(engine)
    assert run(collect(engine, "x", 3, max_tokens=4))[-1].completion.text == "yz>a"  # from another event loop


def test_trees_are_streamed_too() -> None:
    trunk = Trunk(tiny_llama(), byte_tokenizer())
    engine = Engine(MTPModel(trunk, random_heads(trunk)))
    chunks = run(collect(engine, "some text", 3, 8, max_tokens=20, ignore_eos=True))
    assert_joined(chunks)
    assert chunks[-1].completion.token_ids == engine.generate(["some text"], SamplingParams(max_tokens=20))[0].token_ids
    assert chunks[-1].completion.stats.num_draft_tokens > 3 * chunks[-1].completion.stats.num_drafts


def test_leaving_early_aborts() -> None:
    """Its blocks come back, the others go on, and what waited behind it gets its turn."""
    engine = engine_of(ALPHABET, max_batch=2)

    async def leave() -> tuple[list[Chunk], list[Chunk]]:
        others = [asyncio.create_task(collect(engine, start, 2, max_tokens=60)) for start in "ab"]
        stream = engine.stream("c", SamplingParams(max_tokens=200), 1)
        async for chunk in stream:
            assert chunk.token_ids
            break
        await stream.aclose()  # type: ignore[attr-defined]
        assert all(len(row.prompt_token_ids) and row.finish_reason is None for row in engine._core.scheduler.running)
        return await others[0], await others[1]

    for chunks in run(leave()):
        assert_joined(chunks)
        assert len(chunks[-1].completion.token_ids) == 60
    assert_all_is_given_back(engine)


def test_an_engine_that_nobody_holds_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread ends when it has nothing to do, and begins anew with the next request."""
    monkeypatch.setattr(worker, "_IDLE_S", 0.05)
    trunk = script_trunk(">abc>")
    engine = Engine(MTPModel(trunk, None))
    found = weakref.ref(engine._core)

    for _ in range(2):
        [chunk] = run(collect(engine, ">", max_tokens=1))
        assert chunk.token_ids == encode("a")
        end = time.monotonic() + 10
        while engine._worker._thread is not None and time.monotonic() < end:
            time.sleep(0.01)
    del engine
    gc.collect()
    assert found() is None


def test_a_cancelled_listener_aborts() -> None:
    engine = engine_of(ALPHABET)

    async def cancel() -> None:
        task = asyncio.create_task(collect(engine, "c", 1, max_tokens=240))
        while not engine._core.scheduler.running:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(await collect(engine, "d", 1, max_tokens=3)) >= 2

    run(cancel())
    assert_all_is_given_back(engine)


def test_generate_and_streams_at_the_same_time() -> None:
    engine = engine_of(ALPHABET, max_batch=2)

    async def both() -> tuple[list[Chunk], list[Any]]:
        done = asyncio.create_task(
            asyncio.to_thread(engine.generate, ["k", "l", "m"], SamplingParams(max_tokens=30), depth=2)
        )
        chunks = await collect(engine, "c", 1, max_tokens=30)
        return chunks, await done

    chunks, done = run(both())
    assert_joined(chunks)
    assert chunks[-1].completion.token_ids == encode((ALPHABET[1:] * 3)[3:33])
    assert [c.token_ids for c in done] == [encode((ALPHABET[1:] * 3)[n : n + 30]) for n in (11, 12, 13)]
    assert_all_is_given_back(engine)


def test_an_error_in_a_step_reaches_every_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the engine works again."""
    engine = engine_of(ALPHABET, max_batch=2)
    step, count = engine._core.step, 0

    def breaks(works: Any) -> Any:
        nonlocal count
        count += 1
        if count == 4:
            raise RuntimeError("the device is gone")
        return step(works)

    async def three() -> list[Any]:
        streams = [collect(engine, start, 1, max_tokens=200) for start in "abc"]  # one of them waits
        return await asyncio.gather(*streams, return_exceptions=True)

    with monkeypatch.context() as patch:
        patch.setattr(engine._core, "step", breaks)
        breaks.drafter, breaks.cache = step.drafter, step.cache  # type: ignore[attr-defined]
        found = run(three())
    assert [str(error) for error in found] == ["the device is gone"] * 3
    assert_all_is_given_back(engine)
    assert run(collect(engine, "a", 2, max_tokens=3))[-1].completion.text == "bcd"


def test_odd_requests_are_refused_at_once() -> None:
    engine = engine_of(ALPHABET)
    with pytest.raises(ContextLengthError, match="256"):
        run(collect(engine, "a" * 256))
    with pytest.raises(UsageError, match="depth -1 is not allowed"):
        run(collect(engine, "a", -1))
    with pytest.raises(UsageError, match="prompt is empty"):
        run(collect(engine, ""))
    assert engine._worker._thread is None
