"""TreeGrower: greedy trees against the best of all paths, sampled ones against every draw that chance allows."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.grow import TreeGrower, _level_sizes, grow_all
from foretell.decoding.sampling import filtered_probs
from foretell.decoding.shape import Shape
from foretell.models.trunk import Trunk
from foretell.types import Draft
from tests.decoding.chance import Random
from tests.decoding.pooled import pools_of, row_of
from tests.fixtures import random_heads, tiny_llama

HOT = SamplingParams(temperature=1.0)
SHAPES = [Shape(depth, nodes) for depth in (1, 2, 3, 5) for nodes in range(depth, 17)]


def logits_after(path: list[int], size: int, seed: int = 0) -> torch.Tensor:
    number = seed * 100_000 + sum((token + 1) * (size + 1) ** i for i, token in enumerate(path))
    return torch.randn(size, generator=torch.Generator().manual_seed(number), dtype=torch.float64) * 2


def grower_of(shape: Shape, size: int = 260, params: SamplingParams | None = None) -> TreeGrower:
    return TreeGrower(row_of([1], pools_of(8), params=params, vocab_size=size), shape)


def grow(grower: TreeGrower, size: int, seed: int = 0, num_levels: int | None = None) -> None:
    for _ in range(grower.shape.depth if num_levels is None else num_levels):
        grower.grow(torch.stack([logits_after(path, size, seed) for path in grower.prefixes()]))


def log_mass(path: list[int], size: int, seed: int) -> float:
    return sum(float(logits_after(path[:i], size, seed).float().log_softmax(-1)[token]) for i, token in enumerate(path))


def assert_whole(draft: Draft) -> None:
    """Parents come first, siblings differ."""
    assert len(draft.parents) == len(draft.probs) == len(draft)
    assert all(-1 <= parent < n for n, parent in enumerate(draft.parents))
    for node in range(-1, len(draft)):
        tokens = [draft.token_ids[child] for child in draft.children(node)]
        assert len(set(tokens)) == len(tokens)


# Greedy


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_greedy_trees_keep_their_budget_and_the_likeliest_nodes(shape: Shape) -> None:
    for seed in range(3):
        grower = grower_of(shape, 30)
        grow(grower, 30, seed)
        candidates = [grower.draft.prefix(node) for node in range(len(grower.draft))]
        draft = grower.finish()
        assert_whole(draft)
        assert len(draft) == min(shape.num_nodes, len(candidates)) and max(draft.depths) <= shape.depth
        assert draft.probs == [None] * len(draft)
        kept = [draft.prefix(node) for node in range(len(draft))]
        assert all(path[:-1] in [[], *kept] for path in kept)
        masses = {tuple(path): log_mass(path, 30, seed) for path in candidates}
        worst = min(masses[tuple(path)] for path in kept)
        assert all(masses[tuple(path)] <= worst + 1e-5 for path in candidates if path not in kept)
        for node in range(-1, len(draft)):  # children are the best tokens there, best first
            prefix, tokens = draft.prefix(node), [draft.token_ids[child] for child in draft.children(node)]
            assert tokens == logits_after(prefix, 30, seed).topk(len(tokens)).indices.tolist()
        best = [int(logits_after([], 30, seed).argmax())]
        assert draft.token_ids[0] == best[0]
        if shape.is_chain:
            for _ in range(1, shape.depth):
                best.append(int(logits_after(best, 30, seed).argmax()))
            assert (draft.token_ids, draft.is_chain) == (best, True)


@pytest.mark.parametrize("num_nodes", [8, 9, 12, 16])
def test_greedy_trees_are_the_best_of_all_paths(num_nodes: int) -> None:
    """Over four tokens and two levels nothing is left out on the way, so that brute force must agree."""
    paths = [list(path) for depth in (1, 2) for path in itertools.product(range(4), repeat=depth)]
    for seed in range(10):
        grower = grower_of(Shape(2, num_nodes), 4)
        grow(grower, 4, seed)
        draft = grower.finish()
        best = sorted(paths, key=lambda path: -log_mass(path, 4, seed))[:num_nodes]
        assert sorted(draft.prefix(node) for node in range(num_nodes)) == sorted(best)


def test_a_greedy_trees_budget_goes_where_the_mass_is() -> None:
    """One path that is almost certain becomes a chain; an even choice at the root stays wide."""
    sure = torch.tensor([[9.0, 0.0, 0.0, 0.0]])
    grower = grower_of(Shape(3, 4), 4)
    for _ in range(3):
        grower.grow(sure.expand(len(grower.frontier), -1))
    draft = grower.finish()
    assert [0, 0, 0] in [draft.prefix(node) for node in range(4)]
    grower = grower_of(Shape(2, 4), 4)
    grower.grow(torch.zeros(1, 4))
    grower.grow(torch.zeros(len(grower.frontier), 4))
    assert grower.finish().parents == [-1] * 4


def test_plain_chains_and_trees_of_many_rows_grow_together() -> None:
    """Each from its own logits, whatever else is in the pass."""
    shapes = [Shape.chain(3), Shape(3, 7), Shape.chain(2), Shape(2, 5), Shape.chain(3)]
    params = [None, None, HOT, HOT, SamplingParams(bad_words=[[3]])]
    together = [grower_of(s, 12, p) for s, p in zip(shapes, params, strict=True)]
    alone = [grower_of(s, 12, p) for s, p in zip(shapes, params, strict=True)]
    for grower in (*together, *alone):
        grower.row.generator.manual_seed(5)
    for depth in (1, 2, 3):
        active = [grower for grower in together if grower.shape.depth >= depth]
        grow_all(active, torch.cat([torch.stack([logits_after(p, 12) for p in g.prefixes()]) for g in active]))
    for one, other in zip(together, alone, strict=True):
        grow(other, 12)
        got, expected = one.finish(), other.finish()
        assert (got.token_ids, got.parents) == (expected.token_ids, expected.parents)


@pytest.mark.parametrize("shape", [Shape.chain(2), Shape(2, 6)], ids=str)
@pytest.mark.parametrize(
    "params", [None, HOT, SamplingParams(bad_words=[[7]])], ids=["greedy", "sampled", "with rules"]
)
def test_a_reduced_draft_vocabulary(shape: Shape, params: SamplingParams | None) -> None:
    """Logits are over the heads' few tokens, drafts over the trunk's."""
    ids = [5, 7, 100, 250]
    heads = random_heads(Trunk(tiny_llama()), draft_ids=ids)
    grower = grower_of(shape, params=params)
    for _ in range(2):
        grow_all([grower], torch.tensor([[0.0, 3.0, 2.0, 1.0]]).expand(len(grower.frontier), -1), heads)
    draft = grower.finish()
    assert_whole(draft)
    assert len(draft) == shape.num_nodes and set(draft.token_ids) <= set(ids)
    if params is None:
        assert draft.token_ids[0] == 7
    if params and params.bad_words:
        assert 7 not in draft.token_ids and draft.token_ids[0] == 100
    for probs_V in draft.probs:
        assert (probs_V is None) == (params is not HOT)
        if probs_V is not None:
            assert probs_V.nonzero().flatten().tolist() == ids and float(probs_V.sum()) == pytest.approx(1)


def test_banned_tokens_are_no_nodes() -> None:
    """Where rules leave fewer tokens than branches, there are fewer branches."""
    allowed = SamplingParams(bad_words=[[token] for token in range(2, 12)])
    grower = grower_of(Shape(2, 8), 12, allowed)
    grow(grower, 12)
    draft = grower.finish()
    assert_whole(draft)
    assert set(draft.token_ids) == {0, 1} and len(draft) == 6  # two, and two after each


# Sampled


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_levels_share_the_budget(shape: Shape) -> None:
    sizes = _level_sizes(shape)
    assert len(sizes) == shape.depth and sum(sizes) == shape.num_nodes and min(sizes) >= 1
    assert sizes == sorted(sizes, reverse=True)
    assert not shape.is_chain or sizes == [1] * shape.depth


@pytest.mark.parametrize("shape", [s for s in SHAPES if s.num_nodes in (5, 8, 13)], ids=str)
def test_sampled_trees_keep_their_budget(shape: Shape) -> None:
    for seed in range(5):
        grower = grower_of(shape, 20, HOT)
        grower.row.generator.manual_seed(seed)
        grow(grower, 20)
        draft = grower.finish()
        assert_whole(draft)
        assert len(draft) == shape.num_nodes and max(draft.depths) <= shape.depth
        for node in range(-1, len(draft)):
            expected = filtered_probs(logits_after(draft.prefix(node), 20).unsqueeze(0), HOT)[0]
            for child in draft.children(node):
                assert torch.equal(draft.probs[child], expected)  # type: ignore[arg-type]


def test_how_many_children_there_are_does_not_depend_on_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """For given tokens above them every draw has as many; else a rejected child would say something of its siblings."""
    random = Random().install(monkeypatch)

    def two_levels() -> tuple[tuple[int, ...], tuple[int, ...]]:
        grower = grower_of(Shape(2, 5), 4, HOT)
        grow(grower, 4)
        draft = grower.finish()
        above = [n for n, depth in enumerate(draft.depths) if depth == 1]
        return tuple(draft.token_ids[n] for n in above), tuple(len(draft.children(n)) for n in above)

    counts: dict[tuple[int, ...], set[tuple[int, ...]]] = defaultdict(set)
    total = 0.0
    for probability, (above, children) in random.walk(two_levels):
        counts[above].add(children)
        total += probability
    assert total == pytest.approx(1)
    assert len(counts) == 4 * 3 * 2 and all(len(found) == 1 for found in counts.values())
    assert len(set().union(*counts.values())) > 1  # it does depend on the tokens above


def test_children_are_drawn_without_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordered pair comes with q(a) q(b) / (1 - q(a))."""
    random = Random().install(monkeypatch)
    q = filtered_probs(logits_after([], 4).unsqueeze(0), HOT)[0].tolist()

    def one_level() -> tuple[int, ...]:
        grower = grower_of(Shape(1, 2), 4, HOT)
        grow(grower, 4)
        return tuple(grower.finish().token_ids)

    law = {pair: probability for probability, pair in random.walk(one_level)}
    assert law == pytest.approx({(a, b): q[a] * q[b] / (1 - q[a]) for a, b in itertools.permutations(range(4), 2)})


@pytest.mark.parametrize("num_left", [1, 2])
def test_fewer_tokens_with_mass_than_children(num_left: int) -> None:
    params = SamplingParams(temperature=1.0, top_k=num_left)
    for shape in (Shape(1, 4), Shape(3, 9)):
        grower = grower_of(shape, 12, params)
        grow(grower, 12)
        draft = grower.finish()
        assert_whole(draft)
        assert draft.token_ids and all(len(draft.children(node)) <= num_left for node in range(-1, len(draft)))
        assert max(draft.depths) == shape.depth


def test_log_masses_are_those_of_the_paths() -> None:
    grower = grower_of(Shape(2, 6), 8)
    grow(grower, 8)
    for node, mass in enumerate(grower._log_mass):
        assert mass == pytest.approx(log_mass(grower.draft.prefix(node), 8, 0), abs=1e-5)
        assert not math.isnan(mass)
