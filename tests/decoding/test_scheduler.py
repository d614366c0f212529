"""Rows that join, wait, give way, share and leave: each one's text and drafts are those of its single run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from foretell.config import SamplingParams
from foretell.decoding.blocks import BLOCK_SIZE, FULL
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.decoding.memory import block_num_bytes
from foretell.decoding.scheduler import Work
from foretell.decoding.sequence import Sequence as Row
from foretell.decoding.shape import Shape
from foretell.errors import UsageError
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Completion
from tests.decoding.pooled import assert_partition
from tests.fixtures import FAMILIES, byte_tokenizer, encode, random_heads, script_trunk, scripted_heads, tiny_llama
from tests.lossless.oracle import assert_same_text, script_drafts

generator = torch.Generator().manual_seed(11)


def drawn(num_tokens: int) -> list[int]:
    return torch.randint(0, 256, (num_tokens,), generator=generator).tolist()


HEADS: dict[str, dict[str, Any]] = {
    "unrolled": {"unrolled": True, "num_depths": 3},
    "distinct": {"unrolled": False, "num_modules": 3, "num_depths": 3},
    "parallel": {"kind": "parallel"},
}
KINDS = [*HEADS, "model"]


@cache
def trunk_of(family: str = "llama") -> Trunk:
    return Trunk(FAMILIES[family](), byte_tokenizer())


@cache
def near() -> MTPModel:
    """The trunk with some noise on its weights: a draft model that is right at times."""
    model, noise = tiny_llama(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=noise) * parameter.std() * 0.15)
    return MTPModel(Trunk(model, byte_tokenizer()))


@cache
def model_of(kind: str, family: str = "llama") -> MTPModel:
    trunk = trunk_of(family)
    return MTPModel(trunk, random_heads(trunk, **HEADS[kind]) if kind in HEADS else None)


def engine_of(kind: str, max_batch: int = 1, num_blocks: int = 0, **limits: Any) -> Engine:
    """``num_blocks``: what the memory budget is worth."""
    model = model_of(kind)
    drafter = DrafterConfig("model", near()) if kind == "model" else DrafterConfig("heads")
    if num_blocks:
        limits["memory_budget"] = num_blocks * (block_num_bytes(model.trunk)[FULL] + drafter.block_num_bytes(model))
    engine = Engine(model, max_batch, drafter, **limits)
    assert not num_blocks or engine._core.pools[FULL].num_blocks == num_blocks
    return engine


def row_of(engine: Engine, prompt: list[int], params: SamplingParams, depth: int = 0, num_nodes: int = 0) -> Row:
    [row] = engine._sequences(prompt, params, depth, num_nodes, "")
    return row


def add(engine: Engine, prompt: list[int], params: SamplingParams, depth: int = 0, num_nodes: int = 0) -> Row:
    branches = engine.drafter is not None and engine.drafter.branches  # others are given chains
    row = row_of(engine, prompt, params, depth, num_nodes if branches else 0)
    engine._core.add(row)
    return row


def drain(engine: Engine) -> None:
    while not engine._core.is_idle:
        advance(engine)


def advance(engine: Engine) -> list[Work]:
    """One step, with all that holds after every step."""
    scheduler = engine._core.scheduler
    works = engine._core.advance()
    assert sum(work.num_read + work.shape.num_nodes for work in works) <= scheduler.max_step_tokens
    assert len({id(work.row) for work in works}) == len(works) <= engine.max_batch
    assert engine._core.is_idle or works, "rows wait and nothing is done"
    check(engine)
    return works


def check(engine: Engine) -> None:
    scheduler = engine._core.scheduler
    assert not set(scheduler.running) & set(scheduler.waiting)
    assert len(scheduler.running) <= engine.max_batch
    assert len({row.slot for row in scheduler.running}) == len(scheduler.running)
    for kind, pool in engine._core.pools.items():
        assert_partition(pool, [row.tables[kind] for row in scheduler.running])
    for row in scheduler.waiting:
        assert not row.tables and row.num_cached == 0 and row.finish_reason is None
    for row in scheduler.running:
        assert row.finish_reason is None
        for i, block in enumerate(row.tables[FULL].blocks):  # nobody writes where another one reads
            assert (i + 1) * BLOCK_SIZE <= row.num_cached or engine._core.pools[FULL].holders(block) == 1


def assert_all_is_given_back(engine: Engine) -> None:
    assert engine._core.is_idle
    for pool in engine._core.pools.values():
        assert pool.num_held == 0 and pool.num_available == pool.num_blocks
    drafter: Any = engine._core.step.drafter
    assert drafter is None or not drafter._rows


# Any order of events, through a real engine with little memory

SHARED = drawn(40)
REQUESTS: list[tuple[list[int], dict[str, Any], int, int]] = [
    (drawn(5), {"max_tokens": 20}, 0, 0),
    (drawn(50), {"max_tokens": 24}, 3, 0),
    (SHARED + drawn(3), {"max_tokens": 30}, 2, 5),
    (SHARED + drawn(9), {"max_tokens": 25, "temperature": 1.0, "seed": 3}, 0, 0),
    (SHARED + drawn(20), {"max_tokens": 8}, 3, 0),
    (drawn(60), {"max_tokens": 20, "temperature": 0.8, "top_k": 20, "seed": 4}, 1, 4),
    (drawn(1), {"max_tokens": 30}, 3, 8),
    (drawn(70), {"max_tokens": 1}, 3, 0),
]


def params_of(index: int) -> SamplingParams:
    return SamplingParams(ignore_eos=True, **REQUESTS[index][1])


@cache
def alone(index: int) -> Completion:
    """The text of plain decoding, in an engine of its own."""
    [done] = Engine(MTPModel(trunk_of())).generate(REQUESTS[index][:1], params_of(index))
    return done


class EngineMachine(RuleBasedStateMachine):
    """Requests come, are aborted and end, while memory holds two or three of them."""

    num_preemptions = 0
    num_reused = 0

    @initialize(
        kind=st.sampled_from(KINDS),
        max_batch=st.sampled_from([2, 3, 5]),
        num_blocks=st.sampled_from([14, 17]),
        max_step_tokens=st.sampled_from([5, 23, 512]),
    )
    def begin(self, kind: str, max_batch: int, num_blocks: int, max_step_tokens: int) -> None:
        self.kind = kind
        self.engine = engine_of(kind, max_batch, num_blocks, max_step_tokens=max_step_tokens)
        self.rows: list[tuple[int, Row]] = []

    @rule(index=st.integers(0, len(REQUESTS) - 1))
    def add(self, index: int) -> None:
        prompt, _, depth, num_nodes = REQUESTS[index]
        self.rows.append((index, add(self.engine, prompt, params_of(index), depth, num_nodes)))

    @precondition(lambda self: self.rows)
    @rule(count=st.integers(1, 12))
    def advance(self, count: int) -> None:
        for _ in range(count):
            advance(self.engine)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        index, row = data.draw(st.sampled_from(self.rows))
        has_ended = row.finish_reason
        self.engine._core.abort(row)
        assert row.finish_reason == (has_ended or "abort")

    @invariant()
    def is_sound(self) -> None:
        if hasattr(self, "engine"):
            check(self.engine)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        drain(self.engine)
        for index, row in self.rows:
            expected, got = alone(index), row.token_ids
            if row.finish_reason == "abort":
                assert len(got) <= len(expected.token_ids)
            else:
                assert (row.finish_reason, len(got)) == (expected.finish_reason, len(expected.token_ids))
            if row.params.greedy:
                assert_same_text(trunk_of(), row.prompt_token_ids, expected.token_ids[: len(got)], got)
            elif not row.depth:  # a draft that is dropped for want of memory leaves other random numbers
                assert got == expected.token_ids[: len(got)]
        assert_all_is_given_back(self.engine)
        EngineMachine.num_preemptions += self.engine._core.scheduler.num_preemptions
        EngineMachine.num_reused += self.engine._core.scheduler.num_reused_tokens


EngineMachine.TestCase.settings = settings(max_examples=10, stateful_step_count=20, deadline=None, derandomize=True)


class TestAnyOrder(EngineMachine.TestCase):  # type: ignore[name-defined, misc]
    @classmethod
    def tearDownClass(cls) -> None:
        assert EngineMachine.num_preemptions > 0 and EngineMachine.num_reused > 0


# Memory


@pytest.mark.parametrize("num_nodes", [0, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_give_way_start_again_and_write_the_same(kind: str, num_nodes: int) -> None:
    prompts, params = [drawn(n) for n in (9, 40, 53, 2, 34)], SamplingParams(max_tokens=36, ignore_eos=True)
    expected = Engine(MTPModel(trunk_of()), 5).generate(prompts, params)
    engine = engine_of(kind, 5, num_blocks=14)
    rows = [add(engine, prompt, params, 3, num_nodes) for prompt in prompts]
    while not engine._core.is_idle:
        running, waiting = engine._core.scheduler.running, engine._core.scheduler.waiting
        unfinished = [row for row in rows if row.finish_reason is None]
        assert [*running, *waiting] == unfinished  # first come, first served; who came last gives way
        advance(engine)
    assert engine._core.scheduler.num_preemptions > 0
    for row, plain in zip(rows, expected, strict=True):
        assert_same_text(trunk_of(), row.prompt_token_ids, plain.token_ids, row.token_ids)
    assert_all_is_given_back(engine)


def test_a_draft_is_dropped_before_a_row_gives_way() -> None:
    """One row whose root has room and whose draft has not: it decodes plainly."""
    engine = engine_of("unrolled", 2, num_blocks=9)
    row = add(engine, drawn(14), SamplingParams(max_tokens=2, ignore_eos=True), 3)
    advance(engine)
    row.params = SamplingParams(max_tokens=30, ignore_eos=True)
    others = [engine._core.pools[FULL].allocate() for _ in range(engine._core.pools[FULL].num_available)]
    [work] = engine._core.scheduler.plan(lambda rows, _: [Shape.chain(3)] * len(rows))
    assert work.shape == Shape.chain(0) and engine._core.scheduler.num_preemptions == 0
    for block in others:
        engine._core.pools[FULL].release(block)


def test_what_memory_can_never_hold_is_refused() -> None:
    engine = engine_of("unrolled", 2, num_blocks=12)
    with pytest.raises(UsageError, match="may come to 70 tokens, and the memory budget holds 64"):
        engine.generate([drawn(20)], SamplingParams(max_tokens=50))
    [done] = engine.generate([drawn(20)], SamplingParams(max_tokens=44, ignore_eos=True), depth=3)
    assert len(done.token_ids) == 44
    with pytest.raises(UsageError, match="a memory budget of 100 bytes is too small: max_batch . needs"):
        Engine(model_of("unrolled"), memory_budget=100)


def test_abort_gives_everything_back_and_the_others_go_on() -> None:
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    prompts = [drawn(n) for n in (20, 25, 3)]
    [expected] = engine_of("distinct").generate(prompts[1:2], params, depth=3)
    engine = engine_of("distinct", 2)
    rows = [add(engine, prompt, params, 3) for prompt in prompts]
    for _ in range(4):
        advance(engine)
    assert rows[2] in engine._core.scheduler.waiting
    for row in (rows[0], rows[2], rows[0]):
        engine._core.abort(row)
    check(engine)
    assert [row.finish_reason for row in rows] == ["abort", None, "abort"]
    drain(engine)
    assert rows[1].token_ids == expected.token_ids and rows[1].stats == expected.stats
    assert_all_is_given_back(engine)


# Prompts in chunks, and the budget of a step


@pytest.mark.parametrize("max_step_tokens", [4, 7, 33])
@pytest.mark.parametrize("kind", KINDS)
def test_prompts_in_chunks(kind: str, max_step_tokens: int) -> None:
    """Texts and drafts are those of whole prompts; rows that decode are not held up by those that read."""
    prompts, params = [drawn(n) for n in (61, 1, 40, 7)], SamplingParams(max_tokens=16, ignore_eos=True)
    whole = engine_of(kind, 4).generate(prompts, params, depth=3)
    engine = engine_of(kind, 4, max_step_tokens=max_step_tokens)
    rows = [add(engine, prompt, params, 3) for prompt in prompts]
    while not engine._core.is_idle:
        decoding = [row for row in engine._core.scheduler.running if row.num_pending == 1]
        before = [len(row) for row in decoding]
        advance(engine)
        assert all(len(row) > length for row, length in zip(decoding, before, strict=True))
    for row, expected in zip(rows, whole, strict=True):
        assert_same_text(trunk_of(), row.prompt_token_ids, expected.token_ids, row.token_ids)
    if max_step_tokens > 16:  # else drafts are cut to the step's budget
        assert [row.stats for row in rows] == [done.stats for done in whole]


def test_a_step_reads_no_more_than_its_budget() -> None:
    """Six rows that want four tokens each share twelve; nobody waits."""
    engine = engine_of("unrolled", 6, max_step_tokens=12)
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    rows = [add(engine, drawn(3), params, 3) for _ in range(6)]
    most = 0
    while not engine._core.is_idle:
        works = advance(engine)
        most = max(most, sum(work.num_read + work.shape.num_nodes for work in works))
    assert most == 12 and all(len(row.token_ids) == 12 for row in rows)


def test_limits_are_checked() -> None:
    for limits, message in (
        ({"max_step_tokens": 0}, "max_step_tokens is 0; give an integer of at least 1"),
        ({"max_batch": 8, "max_step_tokens": 7}, "max_step_tokens 7 is less than max_batch 8"),
    ):
        with pytest.raises(UsageError, match=message):
            Engine(model_of("unrolled"), **limits)  # type: ignore[arg-type]


# Rows of every kind side by side


@pytest.mark.parametrize("num_nodes", [0, 6])
@pytest.mark.parametrize("mode", ["unrolled", "distinct"])
def test_mixed_rows_equal_their_single_runs(mode: str, num_nodes: int) -> None:
    """Depth, length, stop, seed and temperature of each row; mixed heads, so that rows take steps of every length."""
    trunk = script_trunk(">abcdefghijklmnopqrstuvwxyz>", max_positions=256)
    model = MTPModel(trunk, scripted_heads(trunk, "mixed", wrong_after=encode("cdjrstx"), **HEADS[mode]))
    prompts = [encode("0" * n + start) for n, start in enumerate(">bksy>bkz")]
    settings_of_rows: list[tuple[dict[str, Any], int]] = [
        ({"max_tokens": 50}, 3),
        ({"stop": "no"}, 2),
        ({"max_tokens": 1}, 3),
        ({"max_tokens": 33}, 0),
        ({"temperature": 6.0, "seed": 5, "max_tokens": 30, "ignore_eos": True}, 3),
        ({"temperature": 4.0, "top_k": 3, "seed": 5, "max_tokens": 44}, 1),
        ({"temperature": 6.0, "seed": 6, "max_tokens": 21, "top_p": 0.8}, 3),
        ({"stop": ("xyz", "ghi"), "max_tokens": 60}, 1),
        ({"temperature": 6.0, "seed": 5, "max_tokens": 30, "ignore_eos": True}, 0),
    ]
    each = [SamplingParams(**values) for values, _ in settings_of_rows]
    depths = [depth for _, depth in settings_of_rows]
    singles = [
        Engine(model).generate([prompt], p, depth=depth, num_nodes=num_nodes if depth else 0)[0]
        for prompt, p, depth in zip(prompts, each, depths, strict=True)
    ]
    for max_batch in (2, 4, 9):
        together = Engine(model, max_batch).generate(prompts, each, depth=depths, num_nodes=num_nodes)
        assert together == singles
    accepted = [done.stats.num_accepted_tokens for done in singles]
    assert accepted[3] == accepted[8] == accepted[2] == 0 < min(accepted[0], accepted[1], accepted[7])
    assert sum(accepted[4:7]) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_of_any_length_in_any_batch(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    prompts = [drawn(n) for n in range(1, 41, 4)]
    each = [SamplingParams(max_tokens=6 + 3 * i, ignore_eos=True) for i in range(len(prompts))]
    plain = Engine(MTPModel(trunk_of())).generate(prompts, each)
    if kind != "model":
        script_drafts(monkeypatch, plain, "mixed")
    singles = engine_of(kind).generate(prompts, each, depth=3)
    for max_batch in (4, 10):
        together = engine_of(kind, max_batch).generate(prompts, each, depth=3)
        assert [done.token_ids for done in together] == [done.token_ids for done in plain]
        assert [done.stats for done in together] == [done.stats for done in singles]
    assert sum(done.stats.num_accepted_tokens for done in singles) > 20


@pytest.mark.parametrize("depth", [0, 3])
def test_three_completions_of_one_prompt(depth: int) -> None:
    """The prompt is read once; the first completion is that of n = 1; the set repeats with its seed."""
    prompt, values = drawn(50), {"max_tokens": 12, "temperature": 1.0, "ignore_eos": True}
    engine = engine_of("unrolled", 4)
    three = engine.generate([prompt], SamplingParams(n=3, seed=7, **values), depth=depth)
    assert engine._core.scheduler.num_reused_tokens == (2 * 48 if depth == 0 else 2 * 32)
    again = engine_of("unrolled", 4).generate([prompt], SamplingParams(n=3, seed=7, **values), depth=depth)
    [one] = engine_of("unrolled").generate([prompt], SamplingParams(seed=7, **values), depth=depth)
    assert [done.token_ids for done in three] == [done.token_ids for done in again]
    assert three[0].token_ids == one.token_ids
    assert len({tuple(done.token_ids) for done in three}) == 3
    in_turn = engine_of("unrolled", 1).generate([prompt, [1]], SamplingParams(n=3, seed=7, **values), depth=depth)
    assert [done.token_ids for done in in_turn[:3]] == [done.token_ids for done in three]
    assert len(in_turn) == 6 and all(done.prompt_token_ids == [1] for done in in_turn[3:])


# Prefix reuse


def drafts_of(
    engine: Engine, prompt: list[int], params: SamplingParams, depth: int
) -> tuple[Completion, dict[int, Any]]:
    """A completion, and every draft that was made for it, by the number of tokens it was made behind."""
    drafts: dict[int, Any] = {}
    make = engine._core.step._draft

    def watched(works: Any) -> Any:
        made = make(works)
        for work, draft in zip(works, made, strict=True):
            if work.shape.depth and work.row.prompt_token_ids == prompt:
                drafts[len(work.row)] = (draft.token_ids, draft.parents)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine._core.step, "_draft", watched)
        [done] = engine.generate([prompt], params, depth=depth)
    check(engine)
    return done, drafts


@contextmanager
def reading(trunk: Trunk) -> Iterator[list[int]]:
    """How many tokens each pass of the trunk reads."""
    num_read: list[int] = []
    states = trunk.states

    def counted(embeddings: torch.Tensor, positions: torch.Tensor, *rest: Any, **more: Any) -> Any:
        num_read.append(positions.numel())
        return states(embeddings, positions, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trunk, "states", counted)
        yield num_read


PREFIX = drawn(70)


@pytest.mark.parametrize("kind", KINDS)
def test_a_known_beginning_is_not_read_again(kind: str) -> None:
    """Text, drafts and counts are those of an engine that shares nothing, whichever token a shared part ends at."""
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    engine, apart = engine_of(kind, 2), engine_of(kind, 2, reuse_prefixes=False)
    first = PREFIX + drawn(5)
    drafts_of(engine, first, params, 3)
    for length in (16, 32, 33, 47, 48, 49, 64, 65, 70):
        prompt = PREFIX[:length] + drawn(6)
        before = engine._core.scheduler.num_reused_tokens
        with reading(engine.model.trunk) as num_read:
            got = drafts_of(engine, prompt, params, 3)
        reused = engine._core.scheduler.num_reused_tokens - before
        # A head's last entries of a block depend on the tokens behind it, so one block less is shared than is equal.
        assert reused == max(0, length // BLOCK_SIZE - 1) * BLOCK_SIZE
        assert num_read[0] == len(prompt) - reused
        expected = drafts_of(apart, prompt, params, 3)
        assert got == expected and len(got[1]) > 3
    assert apart._core.scheduler.num_reused_tokens == 0
    assert sum(pool.num_held for pool in engine._core.pools.values()) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_a_known_beginning_too(kind: str) -> None:
    """The next turn of a chat: prompt and answer, then more."""
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    engine, apart = engine_of(kind), engine_of(kind, reuse_prefixes=False)
    [done], follow = engine.generate([PREFIX], params, depth=3), drawn(7)
    prompt = PREFIX + done.token_ids + follow
    assert drafts_of(engine, prompt, params, 3) == drafts_of(apart, prompt, params, 3)
    assert engine._core.scheduler.num_reused_tokens >= 80


@pytest.mark.parametrize("kind", KINDS)
def test_two_running_rows_share_their_beginning(kind: str) -> None:
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    prompts = [PREFIX + [1, 2, 3], PREFIX + [4]]
    singles = [engine_of(kind, reuse_prefixes=False).generate([p], params, depth=3)[0] for p in prompts]
    engine = engine_of(kind, 2)
    first = add(engine, prompts[0], params, 3)
    for _ in range(3):
        advance(engine)
    second = add(engine, prompts[1], params, 3)
    advance(engine)
    shared = second.tables[FULL].blocks[:3]
    assert shared == first.tables[FULL].blocks[:3]
    assert [engine._core.pools[FULL].holders(block) for block in shared] == [2, 2, 2]
    engine._core.abort(first)
    assert [engine._core.pools[FULL].holders(block) for block in shared] == [1, 1, 1]
    drain(engine)
    assert (second.token_ids, second.stats) == (singles[1].token_ids, singles[1].stats)
    assert first.token_ids == singles[0].token_ids[: len(first.token_ids)]


@pytest.mark.parametrize("kind", KINDS)
def test_reuse_between_depths(kind: str) -> None:
    """What a plain row has read is enough for plain rows; drafts need what the drafter has read too."""
    params = SamplingParams(max_tokens=10, ignore_eos=True)
    depth = 3
    engine, apart = engine_of(kind), engine_of(kind, reuse_prefixes=False)
    reused = []
    for i, d in enumerate((0, depth, 0, depth)):
        before = engine._core.scheduler.num_reused_tokens
        prompt = [*PREFIX, 7, i]
        assert drafts_of(engine, prompt, params, d) == drafts_of(apart, prompt, params, d)
        reused.append(engine._core.scheduler.num_reused_tokens - before)
    assert reused[:3] == [0, 0, 64]
    assert reused[3] >= 32  # the plain row came first, and its blocks gave way
    other = engine_of(kind)
    other.generate([PREFIX], params, depth=depth)
    for d, expected in ((2, 48 if kind in ("unrolled", "model") else 0), (0, 64)):
        before = other._core.scheduler.num_reused_tokens
        prompt = [*PREFIX, 9, d]
        assert drafts_of(other, prompt, params, d) == drafts_of(apart, prompt, params, d)
        assert other._core.scheduler.num_reused_tokens - before >= expected
    assert_all_is_given_back(other)


def test_sliding_layers_share_nothing() -> None:
    """They give blocks back that a later row would need."""
    model = MTPModel(trunk_of("mistral"))
    engine, params = Engine(model), SamplingParams(max_tokens=8, ignore_eos=True)
    expected = engine.generate([PREFIX], params)
    assert engine.generate([PREFIX], params) == expected
    assert engine._core.scheduler.num_reused_tokens == 0
