"""KVCache against a plain list, and HeadsDrafter against a fresh one: a stale entry would cost acceptance silently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from foretell.config import SamplingParams
from foretell.decoding import cache as cache_module
from foretell.decoding import drafter_config
from foretell.decoding.cache import KVCache
from foretell.decoding.drafters import HeadsDrafter
from foretell.decoding.engine import Engine
from foretell.decoding.sequence import Sequence as Row
from foretell.models.decoder import States
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Draft
from tests.fixtures import FAMILIES, encode, random_heads, script_trunk, scripted_heads, tiny_llama

CPU = torch.device("cpu")
NUM_SLOTS, MAX_LENGTH = 4, 13


def write(cache: KVCache, slots: Sequence[int], starts: Sequence[int], values: Sequence[Sequence[float]]) -> Any:
    """One pass: layer 0 has 2 heads of width 3 and values of width 1, layer 1 one head of width 2."""
    num_nodes = max(len(row) for row in values)
    entries = [list(range(start, start + len(row))) for start, row in zip(starts, values, strict=True)]
    num_keys = cache.begin(slots, entries, num_nodes, CPU)
    padded_BN = torch.tensor([[*row, *[-99.0] * (num_nodes - len(row))] for row in values])
    seen = []
    for layer, (num_heads, key_width, value_width) in enumerate([(2, 3, 1), (1, 2, 2)]):
        new = padded_BN[:, None, :, None] + 1000 * layer
        keys = new.expand(-1, num_heads, -1, key_width)
        found = cache.update(keys, -new.expand(-1, num_heads, -1, value_width), layer)
        assert found[0].shape == (len(slots), num_heads, num_keys, key_width)
        assert found[1].shape == (len(slots), num_heads, num_keys, value_width)
        for tensor, sign in zip(found, (1, -1), strict=True):
            assert (tensor == tensor[:, :1, :, :1]).all()
            seen.append(sign * tensor[:, 0, :, 0] - 1000 * layer)
    return seen


class CacheMachine(RuleBasedStateMachine):
    """Passes over any subset of slots, then any rewind or commit; buffers start at 2 entries, so that they grow."""

    def __init__(self) -> None:
        super().__init__()
        with mock.patch.object(cache_module, "_FIRST_CAPACITY", 2):
            self.cache = KVCache(NUM_SLOTS, MAX_LENGTH)
        self.model: list[list[float]] = [[] for _ in range(NUM_SLOTS)]
        self.next_value = 1.0

    @rule(data=st.data())
    def pass_and_commit(self, data: st.DataObject) -> None:
        slots = data.draw(st.lists(st.integers(0, NUM_SLOTS - 1), min_size=1, unique=True))
        slots = [s for s in slots if len(self.model[s]) < MAX_LENGTH]
        if not slots:
            return
        values, starts = [], []
        for slot in slots:
            # Also from before the end: the drafter overwrites provisional entries.
            start = data.draw(st.integers(max(0, len(self.model[slot]) - 2), len(self.model[slot])))
            count = data.draw(st.integers(1, min(4, MAX_LENGTH - start)))
            values.append([self.next_value + i for i in range(count)])
            starts.append(start)
            self.next_value += count
        for found_BS in write(self.cache, slots, starts, values):
            for b, slot in enumerate(slots):
                expected = self.model[slot][: starts[b]] + values[b]
                assert found_BS[b, : len(expected)].tolist() == expected
        for b, slot in enumerate(slots):
            written = self.model[slot][: starts[b]] + values[b]
            length = data.draw(st.integers(0, len(written)))
            self.model[slot] = written[:length]
            self.cache.commit(slot, length)

    @rule(source=st.integers(0, NUM_SLOTS - 1), to=st.integers(0, NUM_SLOTS - 1))
    def move(self, source: int, to: int) -> None:
        self.cache.move(source, to)
        self.model[to] = list(self.model[source])

    @rule(slot=st.integers(0, NUM_SLOTS - 1))
    def admit(self, slot: int) -> None:
        self.cache.commit(slot, 0)
        self.model[slot] = []

    @invariant()
    def lengths_agree(self) -> None:
        assert self.cache.lengths == [len(row) for row in self.model]

    def teardown(self) -> None:
        """Every committed entry is still there."""
        for slot, row in enumerate(self.model):
            if len(row) < MAX_LENGTH:
                for found_BS in write(self.cache, [slot], [len(row)], [[0.0]]):
                    assert found_BS[0, : len(row) + 1].tolist() == [*row, 0.0]


CacheMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)
test_cache_is_a_list = CacheMachine.TestCase


def test_memory_is_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_KEY_BLOCK", 1)
    with mock.patch.object(cache_module, "_FIRST_CAPACITY", 2):
        cache = KVCache(2, 5)
    assert cache.num_bytes == 0
    write(cache, [0, 1], [0, 0], [[1.0], [2.0]])
    numbers_an_entry = 2 * 3 + 2 * 1 + 2 + 2
    assert cache.num_bytes == 4 * numbers_an_entry * 2 * 3  # 2 slots of 2 entries and the scratch column
    write(cache, [1], [1], [[1.0, 2.0, 3.0, 4.0]])
    assert cache.num_bytes == 4 * numbers_an_entry * 2 * 6  # not past the 5 entries of the window


@pytest.mark.parametrize(("needed", "num_keys"), [(1, 64), (64, 64), (65, 128), (130, 150), (150, 150)])
def test_keys_come_in_whole_blocks(needed: int, num_keys: int) -> None:
    """As far as the window goes; the rest of a block is there, to be masked."""
    assert KVCache(1, 150).begin([0], [range(needed)], needed, CPU) == num_keys


# The heads' caches


class CheckedDrafter(HeadsDrafter):
    """Compares every draft, and the logits it was chosen from, with what a fresh drafter makes of the same prefix.

    The drafted tokens are replaced by the true continuation where ``is_right`` says so, which sets what is accepted.
    """

    texts: dict[tuple[int, ...], list[int]]
    num_compared: int

    def _choose(self, logits_BV: torch.Tensor, rows: list[Row], drafts: list[Draft]) -> None:
        super()._choose(logits_BV, rows, drafts)
        for row, draft, logits_V in zip(rows, drafts, logits_BV, strict=True):
            self.logits.setdefault(id(draft), []).append(logits_V)
            num_prompt = self.num_prompt_tokens.get(id(row), len(row.prompt_token_ids))
            tokens = row.tokens_from(0) + draft.token_ids
            text, index = self.texts[tuple(tokens[:num_prompt])], len(tokens) - 1 - num_prompt
            if index < len(text) and self.is_right(index):
                draft.token_ids[-1] = text[index]

    @staticmethod
    def is_right(index: int) -> bool:
        return (index * index + index // 3) % 5 not in (0, 3)

    def draft(self, rows: list[Row], depths: list[int]) -> list[Draft]:
        self.logits: dict[int, list[torch.Tensor]] = {}
        self.num_prompt_tokens: dict[int, int] = {}
        drafts = super().draft(rows, depths)
        for row, depth, draft in zip(rows, depths, drafts, strict=True):
            if depth:
                self._compare(row, depth, draft)
        return drafts

    def _compare(self, row: Row, depth: int, draft: Draft) -> None:
        trunk = self.heads.trunk
        fresh = CheckedDrafter(self.heads, 1, trunk.max_positions)
        fresh.admit(0)
        tokens = row.tokens_from(0)
        copy = Row(tokens, row.params, row.depth, trunk.max_positions, frozenset(), None)
        copy.slot = 0
        ids = torch.tensor([tokens[:-1]])
        states = trunk.text_states(ids, torch.zeros_like(ids))
        fresh.observe(copy, 0, States(states.pre_BTD[0], states.post_BTD[0]))
        fresh.logits, fresh.num_prompt_tokens = {}, {id(copy): len(row.prompt_token_ids)}
        [expected] = HeadsDrafter.draft(fresh, [copy], [depth])
        for k in range(depth):
            torch.testing.assert_close(
                self.logits[id(draft)][k],
                fresh.logits[id(expected)][k],
                rtol=1e-4,
                atol=1e-4,
                msg=lambda text, k=k: f"depth {k + 1} after {len(tokens)} tokens: {text}",
            )
        assert draft.token_ids == expected.token_ids
        type(self).num_compared += 1


MODES = {
    "unrolled": {"unrolled": True, "num_depths": 3},
    "distinct": {"unrolled": False, "num_modules": 3, "num_depths": 3},
}
CONVENTIONS = {"default": {}, "other": {"hidden_source": "pre", "concat": "hidden_first", "feedback": "raw"}}
generator = torch.Generator().manual_seed(3)
PROMPTS = [torch.randint(0, 256, (n,), generator=generator).tolist() for n in (1, 2, 3, 4, 19, 7)]


def check_drafts(
    monkeypatch: pytest.MonkeyPatch,
    model: MTPModel,
    prompts: list[list[int]],
    depth: int,
    max_batch: int,
    num_tokens: int,
) -> None:
    each = [SamplingParams(max_tokens=num_tokens - i, ignore_eos=True) for i in range(len(prompts))]
    plain = Engine(model, len(prompts)).generate(prompts, each)
    monkeypatch.setattr(CheckedDrafter, "texts", {tuple(c.prompt_token_ids): c.token_ids for c in plain}, raising=False)
    monkeypatch.setattr(CheckedDrafter, "num_compared", 0, raising=False)
    monkeypatch.setattr(drafter_config, "HeadsDrafter", CheckedDrafter)
    done = Engine(model, max_batch).generate(prompts, each, depth=depth)
    assert [c.token_ids for c in done] == [c.token_ids for c in plain]
    assert CheckedDrafter.num_compared == sum(c.stats.num_drafts for c in done) > len(prompts)


@pytest.mark.parametrize("conventions", sorted(CONVENTIONS))
@pytest.mark.parametrize("max_batch", [1, 4])
@pytest.mark.parametrize(
    ("mode", "depth"), [("unrolled", 1), ("unrolled", 3), ("unrolled", 5), ("distinct", 2), ("distinct", 3)]
)
def test_drafts_are_those_of_a_fresh_drafter(
    monkeypatch: pytest.MonkeyPatch, mode: str, depth: int, max_batch: int, conventions: str
) -> None:
    """After every mix of accepted and rejected tokens, rows that join, leave and change slots included."""
    trunk = Trunk(tiny_llama())
    heads = random_heads(trunk, **MODES[mode], **CONVENTIONS[conventions])
    check_drafts(monkeypatch, MTPModel(trunk, heads), PROMPTS, depth, max_batch, num_tokens=24)


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("family", ["mistral", "gemma2", "deepseek_v3"])
def test_drafts_of_other_families(monkeypatch: pytest.MonkeyPatch, family: str, mode: str) -> None:
    """40 tokens and more: past the sliding window."""
    trunk = Trunk(FAMILIES[family]())
    model = MTPModel(trunk, random_heads(trunk, **MODES[mode]))
    check_drafts(monkeypatch, model, [PROMPTS[4], PROMPTS[1]], 3, max_batch=2, num_tokens=24)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_drafts_while_the_caches_grow(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setattr(cache_module, "_FIRST_CAPACITY", 4)
    trunk = Trunk(tiny_llama())
    model = MTPModel(trunk, random_heads(trunk, **MODES[mode]))
    check_drafts(monkeypatch, model, PROMPTS[:3], 3, max_batch=2, num_tokens=20)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_drafts_of_mixed_heads(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Nothing replaced: what is accepted follows from the heads alone."""
    trunk = script_trunk(">abcdefghijklmnopqrstuvwxyz<eos>")
    model = MTPModel(trunk, scripted_heads(trunk, "mixed", wrong_after=encode("cdjrstx"), **MODES[mode]))
    monkeypatch.setattr(CheckedDrafter, "is_right", staticmethod(lambda index: False))
    check_drafts(monkeypatch, model, [encode(">"), encode("f"), encode("abcd")], 3, max_batch=2, num_tokens=20)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_drafts_up_to_the_end_of_the_heads_window(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    trunk = Trunk(tiny_llama(max_position_embeddings=40))
    model = MTPModel(trunk, random_heads(trunk, max_positions=24, **MODES[mode]))
    check_drafts(monkeypatch, model, [PROMPTS[4], PROMPTS[1]], 3, max_batch=2, num_tokens=50)


class RecordingDrafter(HeadsDrafter):
    """Keeps the logits of every depth."""

    logits: list[torch.Tensor]

    def _choose(self, logits_BV: torch.Tensor, rows: list[Row], drafts: list[Draft]) -> None:
        super()._choose(logits_BV, rows, drafts)
        self.logits.append(logits_BV[0])


@pytest.mark.parametrize("conventions", sorted(CONVENTIONS))
@pytest.mark.parametrize(("mode", "depth"), [("unrolled", 4), ("distinct", 3)])
@torch.no_grad()
def test_a_fresh_drafter_is_right(mode: str, depth: int, conventions: str) -> None:
    """It has the states that training has at the root's index, on the text that the draft makes."""
    trunk = Trunk(tiny_llama())
    heads = random_heads(trunk, **MODES[mode] | {"num_depths": depth}, **CONVENTIONS[conventions])
    prompt = PROMPTS[4]
    row = Row(prompt, SamplingParams(), depth, 512, frozenset(), None)
    row.slot = 0
    ids = torch.tensor([prompt[:-1]])
    drafter = RecordingDrafter(heads, 1, 512)
    drafter.logits = []
    drafter.admit(0)
    states_BTD = trunk.text_states(ids, torch.zeros_like(ids))
    drafter.observe(row, 0, States(states_BTD.pre_BTD[0], states_BTD.post_BTD[0]))
    [draft] = drafter.draft([row], [depth])
    text = torch.tensor([prompt + draft.token_ids])
    doc_ids = torch.zeros_like(text)
    states = heads.training_states(trunk.text_states(text, doc_ids), trunk.embed(text), doc_ids)
    for k, (state, logits_V, token) in enumerate(zip(states, drafter.logits, draft.token_ids, strict=True), start=1):
        torch.testing.assert_close(logits_V, heads.project(state[0, len(prompt) - 2], k), rtol=1e-4, atol=1e-4)
        assert token == int(logits_V.argmax())
