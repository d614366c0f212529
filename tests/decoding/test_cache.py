"""KVCache against plain lists, SequentialDrafter against a fresh one: a stale entry would cost acceptance silently."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from foretell.config import SamplingParams
from foretell.decoding import heads_drafter
from foretell.decoding.blocks import BLOCK_SIZE, FULL, BlockTable, OutOfBlocks
from foretell.decoding.cache import KVCache
from foretell.decoding.engine import Engine
from foretell.decoding.grow import TreeGrower
from foretell.decoding.passes import PassInput, PassRow
from foretell.decoding.sequence import Sequence as Row
from foretell.decoding.sequential_drafter import SequentialDrafter
from foretell.decoding.shape import Shape
from foretell.models.decoder import States
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Draft
from tests.decoding.pooled import SLIDING, assert_partition, pools_of, row_of
from tests.fixtures import FAMILIES, encode, random_heads, script_trunk, scripted_heads, tiny_llama

CPU = torch.device("cpu")
WINDOW = 20
LAYERS = [(2, 3, 1), (1, 2, 2)]  # heads, width of keys, width of values


class Text:
    """A row of the machine: its final tokens, and where they lie."""

    def __init__(self, token_ids: list[int], tables: dict[str, BlockTable]) -> None:
        self.token_ids = token_ids
        self.tables = tables
        self.uids: list[int] = []


class CacheMachine(RuleBasedStateMachine):
    """Passes over any rows, with trees behind them, of which any path is kept; rows begin, share, give way and end.

    What is written for a token is a number of its own for every text up to it, so that what a node may see is known.
    """

    num_shared = 0

    @initialize(sliding=st.booleans(), num_blocks=st.integers(12, 24))
    def begin(self, sliding: bool, num_blocks: int) -> None:
        self.kinds = [FULL, SLIDING if sliding else FULL]
        self.pools = pools_of(num_blocks, *self.kinds[1:])
        self.cache = KVCache(self.kinds, self.pools, WINDOW if sliding else None)
        self.texts: list[Text] = []
        self.numbers: dict[tuple[int, ...], int] = {}
        self.shares = not sliding

    def number(self, token_ids: list[int]) -> float:
        return float(self.numbers.setdefault(tuple(token_ids), len(self.numbers) + 1))

    @rule(token_id=st.integers(0, 1), count=st.integers(0, 50), repeated=st.booleans())
    def add(self, token_id: int, count: int, repeated: bool) -> None:
        """A text that is new, or begins as an earlier one; what is known of it is there."""
        token_ids = [token_id] * count
        if repeated and self.numbers:
            token_ids = list(max(self.numbers, key=len))[:50]
        tables = {
            kind: BlockTable(pool, window=WINDOW if kind == SLIDING else None) for kind, pool in self.pools.items()
        }
        text = Text([], tables)
        if self.shares:
            blocks, text.uids = self.pools[FULL].find(token_ids, drafted=False)
            type(self).num_shared += len(blocks)
            tables[FULL].share(blocks)
            text.token_ids = token_ids[: len(blocks) * BLOCK_SIZE]
        self.texts.append(text)
        if len(token_ids) > len(text.token_ids):
            self.run([text], [token_ids[len(text.token_ids) :]], [Draft()], packed=True, width=1, keep=[[]])

    @rule(data=st.data(), packed=st.booleans(), width=st.integers(1, 5))
    def step(self, data: st.DataObject, packed: bool, width: int) -> None:
        """New tokens and a tree for some rows in one pass; any path of the tree is kept."""
        if not self.texts:
            return
        texts = data.draw(st.lists(st.sampled_from(self.texts), min_size=1, max_size=4, unique=True))
        news = [data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=4)) for _ in texts]
        drafts = []
        for _ in texts:
            draft = Draft()
            for n in range(data.draw(st.integers(0, 6))):
                draft.add(data.draw(st.integers(2, 5)), data.draw(st.integers(-1, n - 1)))
            drafts.append(draft)
        ends = [data.draw(st.integers(-1, len(draft) - 1)) for draft in drafts]
        self.run(texts, news, drafts, packed, width, [d.path(end) for d, end in zip(drafts, ends, strict=True)])

    def run(
        self,
        texts: list[Text],
        news: list[list[int]],
        drafts: list[Draft],
        packed: bool,
        width: int,
        keep: list[list[int]],
    ) -> None:
        rows, paths = [], []
        for text, new, draft in zip(texts, news, drafts, strict=True):
            start, root = len(text.token_ids), len(text.token_ids) + len(new)
            try:
                for table in text.tables.values():
                    table.reserve(root + len(draft) + width)
            except OutOfBlocks:  # none of what was written is final
                self.preempt(self.texts.index(texts[-1]))
                return
            seen: list[list[int] | None] = [None] * len(new)
            seen += [[root + n for n in draft.path(node)] for node in range(len(draft))]
            positions = [*range(start, root), *[root - 1 + depth for depth in draft.depths]]
            is_tree = not draft.is_chain
            rows.append(
                PassRow(text.tables, root if is_tree else start, positions, range(start, root + len(draft)), seen)
                if is_tree
                else PassRow.stretch(text.tables, start, len(new) + len(draft))
            )
            before = text.token_ids
            paths.append(
                [before + new[: n + 1] for n in range(len(new))]
                + [before + new + draft.prefix(node) for node in range(len(draft))]
            )
        pass_input = PassInput.build(self.cache, rows, CPU, width, packed)
        values_BTD = pass_input.states([torch.tensor([[self.number(p)] for p in nodes]) for nodes in paths])
        for layer, kind in enumerate(self.kinds):
            num_heads, *widths = LAYERS[layer]
            new_BHTD = values_BTD.unsqueeze(1).expand(-1, num_heads, -1, -1) + 10_000 * layer
            keys, values = (sign * new_BHTD.expand(-1, -1, -1, w) for sign, w in zip((1, -1), widths, strict=True))
            found = self.cache.update(keys, values, layer)
            for tensor, sign, size in zip(found, (1, -1), widths, strict=True):
                assert tensor.shape[:2] == (len(texts), num_heads) and tensor.shape[3] == size
                assert (tensor == tensor[:, :1, :, :1]).all()
                self.check(sign * tensor[:, 0, :, 0] - 10_000 * layer, pass_input.masks[kind], paths, kind)
        for text, new, draft, path in zip(texts, news, drafts, keep, strict=True):
            root = len(text.token_ids) + len(new)
            if path != list(range(len(path))):
                self.cache.compact(text.tables, [root + node for node in path], root)
            text.token_ids = text.token_ids + new + [draft.token_ids[node] for node in path]
            for table in text.tables.values():
                table.commit(len(text.token_ids))
            for i in range(len(text.uids), len(text.token_ids) // BLOCK_SIZE if self.shares else 0):
                block, tokens = text.tables[FULL].blocks[i], text.token_ids[i * BLOCK_SIZE : (i + 1) * BLOCK_SIZE]
                text.uids.append(self.pools[FULL].remember(block, text.uids[-1] if i else 0, tokens))

    def check(self, found_BS: torch.Tensor, mask_BNS: torch.Tensor, paths: list[list[list[int]]], kind: str) -> None:
        """Each node sees its own text, as far back as the layer looks, each token once, and nothing else."""
        for b, nodes in enumerate(paths):
            for n, path in enumerate(nodes):
                back = WINDOW if kind == SLIDING else len(path)
                expected = [self.number(path[: i + 1]) for i in range(max(0, len(path) - back), len(path))]
                assert sorted(found_BS[b, mask_BNS[b, n]].tolist()) == sorted(expected)

    @rule(index=st.integers(0, 9))
    def preempt(self, index: int) -> None:
        """A row ends, or gives way."""
        if index < len(self.texts):
            for table in self.texts.pop(index).tables.values():
                table.release()

    @invariant()
    def no_block_is_lost(self) -> None:
        for kind, pool in getattr(self, "pools", {}).items():
            assert_partition(pool, [text.tables[kind] for text in self.texts])

    def teardown(self) -> None:
        """Whatever was committed is still there."""
        for text in getattr(self, "texts", [])[:1]:
            self.run([text], [[0]], [Draft()], packed=True, width=1, keep=[[]])


CacheMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=15, deadline=None, derandomize=True)


class TestACacheIsAList(CacheMachine.TestCase):  # type: ignore[name-defined, misc]
    @classmethod
    def tearDownClass(cls) -> None:
        assert CacheMachine.num_shared > 0


def one_pass(cache: KVCache, row: Row, count: int, width: int = 1) -> PassInput:
    pass_input = PassInput.build(cache, [PassRow.stretch(row.tables, 0, count)], CPU, width)
    for layer, (num_heads, *widths) in enumerate(LAYERS):
        cache.update(*(torch.ones(1, num_heads, pass_input.padded[0], w) for w in widths), layer)
    return pass_input


def test_memory_is_that_of_the_blocks_held_at_one_time() -> None:
    pools = pools_of(8)
    cache = KVCache([FULL, FULL], pools)
    assert cache.num_bytes == 0
    rows = [row_of([1], pools, room=n) for n in (3, 3 * BLOCK_SIZE - 1)]
    one_pass(cache, rows[0], 2)
    numbers_an_entry = 2 * 3 + 2 * 1 + 2 + 2
    assert cache.num_bytes == 4 * numbers_an_entry * BLOCK_SIZE * (1 + 3)
    for row in rows:
        row.tables[FULL].release()
    assert cache.num_bytes == 4 * numbers_an_entry * BLOCK_SIZE * 4  # at its largest


@pytest.mark.parametrize(("needed", "num_keys"), [(1, 64), (64, 64), (65, 128), (130, 192), (150, 192)])
def test_keys_come_in_whole_blocks(needed: int, num_keys: int) -> None:
    """Also behind the pool's end; the rest of a block is there, to be masked."""
    pools = pools_of(-(-needed // BLOCK_SIZE))
    row = row_of([1] * needed, pools, room=0)
    pass_input = one_pass(KVCache([FULL, FULL], pools), row, needed)
    assert pass_input.masks[FULL].shape == (1, needed, num_keys)
    assert pass_input.masks[FULL].sum() == needed * (needed + 1) // 2


def test_padding_is_written_where_nothing_is_read() -> None:
    """Behind the row's own entries where there is room, else nowhere."""
    for room in (0, 5):
        pools = pools_of(2)
        row = row_of([1] * (2 * BLOCK_SIZE - 5), pools, room=room)
        cache = KVCache([FULL, FULL], pools)
        count = 2 * BLOCK_SIZE - 5
        assert one_pass(cache, row, count, width=count + 9).padded == [count + 9]
        written = cache.spans[FULL].write_P.tolist()
        assert written[:count] == list(range(count))
        assert written[count:] == [*range(count, count + 5), *[cache.scratch(FULL)] * 4]


# The heads' caches


class CheckedDrafter(SequentialDrafter):
    """Compares every draft, and the logits it was chosen from, with what a fresh drafter makes of the same prefix.

    A drafted token is replaced by the true continuation where ``is_right`` says so, which sets what is accepted.
    """

    texts: dict[tuple[int, ...], list[int]]
    num_compared: int

    def _choose(self, logits_FV: torch.Tensor, growers: list[Any]) -> None:
        sizes = [len(grower.frontier) for grower in growers]
        super()._choose(logits_FV, growers)
        for grower, own_FV in zip(growers, logits_FV.split(sizes), strict=True):
            row, draft = grower.row, grower.draft
            self.logits.setdefault(id(row), []).append(own_FV)
            text = self.texts[tuple(row.prompt_token_ids)]
            index = len(row.token_ids) + grower.depth - 1
            if index < len(text) and self.is_right(index):
                put_right(draft, text[len(row.token_ids) : index + 1])

    @staticmethod
    def is_right(index: int) -> bool:
        return (index * index + index // 3) % 5 not in (0, 3)

    def draft(self, rows: list[Row], shapes: list[Shape]) -> list[Draft]:
        self.logits: dict[int, list[torch.Tensor]] = {}
        drafts = super().draft(rows, shapes)
        for row, shape, draft in zip(rows, shapes, drafts, strict=True):
            if shape.depth:
                self._compare(row, shape, draft)
        return drafts

    def _compare(self, row: Row, shape: Shape, draft: Draft) -> None:
        trunk = self.heads.trunk
        pools = pools_of(24, *self.heads.layer_kinds)
        fresh = CheckedDrafter(self.heads, pools, trunk.max_positions)
        tokens = row.tokens_from(0)
        copy = row_of(tokens, pools, row.depth, params=row.params)
        copy.prompt_token_ids, copy.token_ids = row.prompt_token_ids, list(row.token_ids)
        fresh.admit(copy)
        ids = torch.tensor([tokens[:-1]])
        states = trunk.text_states(ids, torch.zeros_like(ids))
        fresh.observe(copy, 0, States(states.pre_BTD[0], states.post_BTD[0]))
        fresh.logits = {}
        [expected] = SequentialDrafter.draft(fresh, [copy], [shape])
        assert len(self.logits[id(row)]) == len(fresh.logits[id(copy)]) == shape.depth
        for k, (got_FV, expected_FV) in enumerate(zip(self.logits[id(row)], fresh.logits[id(copy)], strict=True)):
            torch.testing.assert_close(
                got_FV,
                expected_FV,
                rtol=1e-4,
                atol=1e-4,
                msg=lambda text, k=k: f"depth {k + 1} after {len(tokens)} tokens: {text}",
            )
        assert (draft.token_ids, draft.parents) == (expected.token_ids, expected.parents)
        type(self).num_compared += 1


def put_right(draft: Draft, text: list[int]) -> None:
    """The drafted node at the end of ``text`` says so, if the nodes before it do and none beside it does already."""
    parents = [-1]
    for token_id in text[:-1]:
        parents = [n for parent in parents for n in draft.children(parent) if draft.token_ids[n] == token_id]
    level = [n for parent in parents for n in draft.children(parent)]
    if level and all(draft.token_ids[n] != text[-1] for n in level):
        draft.token_ids[level[0]] = text[-1]


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
    num_nodes: int = 0,
    **limits: Any,
) -> None:
    each = [SamplingParams(max_tokens=num_tokens - i, ignore_eos=True) for i in range(len(prompts))]
    plain = Engine(model, len(prompts)).generate(prompts, each)
    monkeypatch.setattr(CheckedDrafter, "texts", {tuple(c.prompt_token_ids): c.token_ids for c in plain}, raising=False)
    monkeypatch.setattr(CheckedDrafter, "num_compared", 0, raising=False)
    monkeypatch.setattr(heads_drafter, "SequentialDrafter", CheckedDrafter)
    done = Engine(model, max_batch, **limits).generate(prompts, each, depth=depth, num_nodes=num_nodes)
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
    """After every mix of accepted and rejected tokens, rows that join and leave included."""
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
@pytest.mark.parametrize("family", ["mistral", "gemma2"])
def test_drafts_after_a_prompt_much_longer_than_the_window(
    monkeypatch: pytest.MonkeyPatch, family: str, mode: str
) -> None:
    """Heads read a prompt when they are first asked, by which time the trunk has given back what it read at first."""
    trunk = Trunk(FAMILIES[family]())
    model = MTPModel(trunk, random_heads(trunk, **MODES[mode]))
    prompts = [PROMPTS[4] * 5, PROMPTS[5] * 7]
    check_drafts(monkeypatch, model, prompts, 3, max_batch=2, num_tokens=6, max_step_tokens=40)


@pytest.mark.parametrize("conventions", sorted(CONVENTIONS))
@pytest.mark.parametrize("max_batch", [1, 4])
@pytest.mark.parametrize(
    ("mode", "depth", "num_nodes"), [("unrolled", 2, 5), ("unrolled", 4, 9), ("distinct", 2, 5), ("distinct", 3, 8)]
)
def test_trees_are_those_of_a_fresh_drafter(
    monkeypatch: pytest.MonkeyPatch, mode: str, depth: int, num_nodes: int, max_batch: int, conventions: str
) -> None:
    """Branches leave nothing in the caches that a later draft reads."""
    trunk = Trunk(tiny_llama())
    model = MTPModel(trunk, random_heads(trunk, **MODES[mode], **CONVENTIONS[conventions]))
    check_drafts(monkeypatch, model, PROMPTS[2:5], depth, max_batch, num_tokens=20, num_nodes=num_nodes)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_trees_behind_a_sliding_window(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    trunk = Trunk(FAMILIES["mistral"]())
    model = MTPModel(trunk, random_heads(trunk, **MODES[mode]))
    check_drafts(monkeypatch, model, [PROMPTS[4], PROMPTS[1]], 3, max_batch=2, num_tokens=24, num_nodes=8)


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


class RecordingDrafter(SequentialDrafter):
    """Keeps the logits of every depth."""

    logits: list[torch.Tensor]

    def _choose(self, logits_FV: torch.Tensor, growers: list[Any]) -> None:
        super()._choose(logits_FV, growers)
        self.logits.append(logits_FV)


@torch.no_grad()
def drafted(heads: Any, prompt: list[int], shape: Shape) -> tuple[Draft, list[torch.Tensor]]:
    """A fresh drafter's draft behind ``prompt``, and the logits (F, V) of every depth."""
    pools = pools_of()
    row = row_of(prompt, pools, shape.depth)
    drafter = RecordingDrafter(heads, pools, 512)
    drafter.logits = []
    drafter.admit(row)
    ids = torch.tensor([prompt[:-1]])
    states_BTD = heads.trunk.text_states(ids, torch.zeros_like(ids))
    drafter.observe(row, 0, States(states_BTD.pre_BTD[0], states_BTD.post_BTD[0]))
    [draft] = drafter.draft([row], [shape])
    return draft, drafter.logits


@torch.no_grad()
def trained_logits(heads: Any, prompt: list[int], guessed: list[int], depth: int) -> torch.Tensor:
    """What training says at the root's index in depth ``depth`` of the text that ``guessed`` makes."""
    text = torch.tensor([prompt + guessed])
    doc_ids = torch.zeros_like(text)
    states = heads.training_states(heads.trunk.text_states(text, doc_ids), heads.trunk.embed(text), doc_ids)
    return heads.project(states[depth - 1][0, len(prompt) - 2], depth)


@pytest.mark.parametrize("conventions", sorted(CONVENTIONS))
@pytest.mark.parametrize(("mode", "depth"), [("unrolled", 4), ("distinct", 3)])
def test_a_fresh_drafter_is_right(mode: str, depth: int, conventions: str) -> None:
    """It has the states that training has at the root's index, on the text that the draft makes."""
    heads = random_heads(Trunk(tiny_llama()), **MODES[mode] | {"num_depths": depth}, **CONVENTIONS[conventions])
    prompt = PROMPTS[4]
    draft, logits = drafted(heads, prompt, Shape.chain(depth))
    assert draft.is_chain and len(draft) == depth
    for k, (logits_FV, token) in enumerate(zip(logits, draft.token_ids, strict=True), start=1):
        expected_V = trained_logits(heads, prompt, draft.token_ids, k)
        torch.testing.assert_close(logits_FV[0], expected_V, rtol=1e-4, atol=1e-4)
        assert token == int(logits_FV[0].argmax())


@pytest.mark.parametrize("conventions", sorted(CONVENTIONS))
@pytest.mark.parametrize(("mode", "depth"), [("unrolled", 4), ("distinct", 3)])
def test_every_branch_of_a_fresh_tree_is_right(mode: str, depth: int, conventions: str) -> None:
    """A node of the frontier has the state that training has on its own path, whatever lies beside it."""
    heads = random_heads(Trunk(tiny_llama()), **MODES[mode] | {"num_depths": depth}, **CONVENTIONS[conventions])
    prompt, paths = PROMPTS[4], []
    grow = TreeGrower.grow

    def watched(self: TreeGrower, *logits: torch.Tensor) -> None:
        paths.append(self.prefixes())
        grow(self, *logits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TreeGrower, "grow", watched)
        _, logits = drafted(heads, prompt, Shape(depth, 4 * depth))
    assert [len(level) for level in paths] == [1, *[4] * (depth - 1)]
    for k, (logits_FV, level) in enumerate(zip(logits, paths, strict=True), start=1):
        for logits_V, path in zip(logits_FV, level, strict=True):
            expected_V = trained_logits(heads, prompt, path, k)
            torch.testing.assert_close(logits_V, expected_V, rtol=1e-4, atol=1e-4)
