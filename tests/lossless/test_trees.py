"""Drafted trees: whatever their shape and whichever branch is right, the text is the trunk's own."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.blocks import FULL
from foretell.decoding.engine import Engine
from foretell.models.mtp_model import MTPModel
from foretell.types import Completion
from tests.fixtures import FAMILIES, dist_heads, dist_trunk, encode, random_heads
from tests.lossless.oracle import assert_same_text, script_drafts
from tests.lossless.test_greedy import KINDS, MAX_TOKENS, MODES, PARALLEL, PROMPTS, plain_texts, trunk_of

SHAPES = {(2, 4): "perfect", (2, 8): "mixed", (3, 4): "mixed", (3, 8): "perfect"}
CASES = [(mode, shape, quality) for mode in MODES for shape, quality in SHAPES.items()]
CASES += [(kind, (3, 8), quality) for kind in KINDS for quality in ("random", "wrong")]
CASES += [(kind, (2, 4), "mixed") for kind in PARALLEL] + [(kind, (3, 8), "perfect") for kind in PARALLEL]


def generate(family: str, heads: Any, shape: tuple[int, int], max_batch: int, count: int = 4) -> list[Completion]:
    each = [SamplingParams(max_tokens=n, ignore_eos=True) for n in MAX_TOKENS[:count]]
    engine = Engine(MTPModel(trunk_of(family), heads), max_batch)
    return engine.generate(PROMPTS[:count], each, depth=shape[0], num_nodes=shape[1])


@pytest.mark.parametrize(("kind", "shape", "quality"), CASES, ids=str)
def test_every_quality_and_shape(
    monkeypatch: pytest.MonkeyPatch, kind: str, shape: tuple[int, int], quality: str
) -> None:
    """Alone and in a batch; what is accepted does not depend on the neighbours."""
    depth, num_nodes = shape
    script_drafts(monkeypatch, plain_texts("llama"), quality)
    heads = random_heads(trunk_of("llama"), **KINDS[kind])
    together = generate("llama", heads, shape, 4)
    for done, plain in zip(together, plain_texts("llama"), strict=True):
        assert (done.token_ids, done.finish_reason) == (plain.token_ids, plain.finish_reason)
        assert done.stats.num_draft_tokens <= num_nodes * done.stats.num_drafts
    for done, single in zip(together, generate("llama", heads, shape, 1, count=2), strict=False):
        assert (done.stats, done.origins, done.num_rounds) == (single.stats, single.origins, single.num_rounds)
    stats = [done.stats for done in together]
    assert sum(s.num_draft_tokens for s in stats) > 1.2 * sum(sum(s.drafted_per_position) for s in stats)
    if quality == "perfect":  # as deep as was drafted, every time
        assert all(s.accepted_per_position == s.drafted_per_position for s in stats)
        assert together[0].num_rounds == 1 + math.ceil((MAX_TOKENS[0] - 1) / (depth + 1))
    if quality == "wrong":
        assert all(s.num_accepted_tokens == 0 < s.num_draft_tokens for s in stats)
    if quality == "mixed":
        assert 0 < sum(s.num_accepted_tokens for s in stats) < sum(sum(s.drafted_per_position) for s in stats)


@pytest.mark.parametrize("kind", [*MODES, "layer below", "medusa"])
@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"llama"}))
def test_every_family(monkeypatch: pytest.MonkeyPatch, family: str, kind: str) -> None:
    """Sliding windows, experts, latent attention: with a mask for every branch."""
    heads = random_heads(trunk_of(family), **KINDS[kind])
    for quality in ("mixed", "random") if kind == "distinct" else ("mixed",):
        script_drafts(monkeypatch, plain_texts(family), quality)
        got = generate(family, heads, (3, 8), 4)
        for expected, done in zip(plain_texts(family), got, strict=True):
            assert_same_text(trunk_of(family), expected.prompt_token_ids, expected.token_ids, done.token_ids)
        if quality == "mixed":
            assert sum(done.stats.num_accepted_tokens for done in got) > 20


def test_a_tree_accepts_what_its_chain_would_and_more() -> None:
    """At equal depth a tree holds the chain: with real heads it never needs more rounds."""
    heads = random_heads(trunk_of("llama"), **MODES["unrolled"])
    chain, tree = (generate("llama", heads, shape, 4) for shape in ((3, 3), (3, 16)))
    assert [done.token_ids for done in tree] == [done.token_ids for done in chain]
    assert sum(done.num_rounds for done in tree) <= sum(done.num_rounds for done in chain)
    assert sum(d.stats.num_accepted_tokens for d in tree) > sum(d.stats.num_accepted_tokens for d in chain)


@pytest.mark.parametrize("kind", ["unrolled", "layer"])
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "deepseek_v3"])
def test_an_accepted_branch_leaves_what_plain_decoding_leaves(
    monkeypatch: pytest.MonkeyPatch, family: str, kind: str
) -> None:
    """Keys, values and states of a row that took branches other than the first are those of a row without drafts."""
    plain = plain_texts(family)
    script_drafts(monkeypatch, plain, "perfect")
    model = MTPModel(trunk_of(family), random_heads(trunk_of(family), **KINDS[kind]))
    params = SamplingParams(max_tokens=MAX_TOKENS[0], ignore_eos=True)

    def decoded(depth: int, length: int) -> tuple[Any, dict[int, torch.Tensor], int]:
        """A row of ``length`` tokens, its entries; states that the drafter was told of; how often a path was moved."""
        engine = Engine(model, max_batch=2)
        core, states, num_moved = engine._core, {}, 0
        [row] = engine._sequences(PROMPTS[0], params, depth, 8 if depth else 0, "")
        core.add(row)
        compact = core.step.cache.compact

        def moved(*args: Any) -> None:
            nonlocal num_moved
            num_moved += 1
            compact(*args)

        monkeypatch.setattr(core.step.cache, "compact", moved)
        if core.step.drafter is not None:
            observe = core.step.drafter.observe

            def told(row: Any, index: int, new: Any) -> None:
                states.update({index + i: state for i, state in enumerate(new.post_BTD)})
                observe(row, index, new)

            monkeypatch.setattr(core.step.drafter, "observe", told)
        while len(row) < length:
            core.advance()
        entries = []
        for layer, layer_kind in enumerate(core.step.cache.kinds):
            table = row.tables[layer_kind]
            held = range(max(table.first_entry, row.num_cached - 10), row.num_cached)
            where = torch.tensor([table.physical(entry) for entry in held])
            for buffers in (core.step.cache._keys, core.step.cache._values):
                entries.append(buffers[layer].flatten(1, 2)[:, where])
        return (row, entries), states, num_moved

    length = len(PROMPTS[0]) + 1 + 4 * 4  # four rounds of four tokens
    (row, entries), states, num_moved = decoded(3, length)
    (other, expected), _, _ = decoded(0, length)
    assert num_moved == 4 and row.stats.num_accepted_tokens == 12
    assert len(row) == len(other) == length and row.token_ids == other.token_ids
    assert row.num_cached == other.num_cached
    assert set(row.tables) >= {FULL} and len(entries) == len(expected) > 2
    for got, plain_entries in zip(entries, expected, strict=True):
        torch.testing.assert_close(got, plain_entries, rtol=1e-4, atol=1e-4)
    ids = torch.tensor([row.tokens_from(0)[:-1]])
    true_states = model.trunk.text_states(ids, torch.zeros_like(ids)).post_BTD[0]
    assert sorted(states) == list(range(length - 1))
    torch.testing.assert_close(torch.stack([states[i] for i in range(length - 1)]), true_states, rtol=1e-4, atol=1e-4)


# Sampled

TOKENS = encode("abcd")
P = dict(zip(TOKENS, (0.50, 0.30, 0.15, 0.05), strict=True))
Q = dict(zip(TOKENS, (0.40, 0.10, 0.30, 0.20), strict=True))
SAMPLED: list[tuple[dict[str, Any], dict[str, Any], tuple[float, ...], int]] = [
    ({}, {}, (0.50, 0.30, 0.15, 0.05), 20_000),
    ({}, {"top_k": 3, "top_p": 0.83}, (0.625, 0.375, 0, 0), 1_600),
    ({}, {"top_p": 0.85}, (0.526, 0.316, 0.158, 0), 1_600),
    ({"kind": "parallel", "hidden_source": "below"}, {}, (0.50, 0.30, 0.15, 0.05), 1_600),
    ({"kind": "medusa"}, {"temperature": 0.5}, (0.685, 0.247, 0.062, 0.007), 1_600),
    ({"kind": "medusa"}, {"top_k": 2}, (0.625, 0.375, 0, 0), 1_600),
]


@pytest.mark.parametrize(("heads", "params", "law", "num_tokens"), SAMPLED, ids=str)
def test_law_from_end_to_end(
    heads: dict[str, Any], params: dict[str, Any], law: tuple[float, ...], num_tokens: int
) -> None:
    trunk, length = dist_trunk(P), 41
    model = MTPModel(trunk, dist_heads(trunk, Q, **heads))
    num_texts = num_tokens // (length - 1)
    each = [SamplingParams(**{"max_tokens": length, "temperature": 1.0, "seed": i} | params) for i in range(num_texts)]
    done = Engine(model, max_batch=250).generate([[TOKENS[0]]] * num_texts, each, depth=3, num_nodes=6)
    texts = [completion.token_ids[1:] for completion in done]  # the first is never drafted
    tokens = [token for text in texts for token in text]
    assert len(tokens) == num_tokens and {t for t, p in zip(TOKENS, law, strict=True) if p} == set(tokens)
    limit = 0.02 * math.sqrt(20_000 / num_tokens)
    assert sum(abs(tokens.count(t) / num_tokens - p) for t, p in zip(TOKENS, law, strict=True)) / 2 < limit
    pairs = [pair for text in texts for pair in itertools.pairwise(text)]
    of = dict(zip(TOKENS, law, strict=True))
    distance = sum(abs(pairs.count((a, b)) / len(pairs) - of[a] * of[b]) for a in TOKENS for b in TOKENS) / 2
    assert distance < 2 * limit
    stats = [completion.stats for completion in done]
    assert sum(s.num_draft_tokens for s in stats) > 1.3 * sum(sum(s.drafted_per_position) for s in stats)


def test_seeds_repeat_beside_others() -> None:
    trunk = dist_trunk(P)
    model = MTPModel(trunk, dist_heads(trunk, Q))
    each = [SamplingParams(max_tokens=30, temperature=1.0, seed=seed) for seed in (42, 7, 42, 43)]
    together = Engine(model, 4).generate([[TOKENS[0]]] * 4, each, depth=2, num_nodes=5)
    [alone] = Engine(model).generate([[TOKENS[0]]], each[0], depth=2, num_nodes=5)
    assert together[0] == together[2] == alone
    assert len({tuple(done.token_ids) for done in together}) == 3


def test_trees_of_heads_with_the_trunks_law_are_accepted_down_to_a_leaf() -> None:
    """The first child of every node is always right; what its siblings cost is nodes, not the law."""
    trunk = dist_trunk(P)
    params = SamplingParams(max_tokens=50, temperature=1.0, seed=0)
    [done] = Engine(MTPModel(trunk, dist_heads(trunk, P))).generate([[TOKENS[0]]], params, depth=1, num_nodes=3)
    assert done.stats.accepted_per_position == done.stats.drafted_per_position
