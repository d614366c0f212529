"""Units, and the law of a round with a tree, exactly: every draft and every verdict that chance allows is run."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding import grow, verify
from foretell.decoding.grow import TreeGrower
from foretell.decoding.sampling import filtered_probs
from foretell.decoding.shape import Shape
from foretell.decoding.verify import verify_greedy, verify_sampled
from foretell.types import Draft, Verdict
from tests.decoding.chance import Random
from tests.decoding.pooled import pools_of, row_of

HOT = SamplingParams(temperature=1.0)


@pytest.mark.parametrize(
    ("drafted", "argmax_ids", "verdict"),
    [
        ([], [7], Verdict([], 7, True)),
        ([5], [5, 6], Verdict([0], 6, True)),
        ([5], [4, 6], Verdict([], 4, False)),
        ([5, 6, 7], [5, 6, 7, 8], Verdict([0, 1, 2], 8, True)),
        ([5, 6, 7], [5, 6, 9, 8], Verdict([0, 1], 9, False)),
        ([5, 6, 7], [9, 6, 7, 8], Verdict([], 9, False)),  # what follows a wrong token does not count
        ([5, 6, 7], [5, 9, 7, 8], Verdict([0], 9, False)),
    ],
)
def test_greedy(drafted: list[int], argmax_ids: list[int], verdict: Verdict) -> None:
    assert verify_greedy(Draft.chain(drafted), argmax_ids) == verdict


#         root
#       5      6
#     7   8    7
#              9
TREE = Draft([5, 6, 7, 8, 7, 9], [-1, -1, 0, 0, 1, 4], [None] * 6)


@pytest.mark.parametrize(
    ("argmax_ids", "verdict"),
    [
        ([4, 0, 0, 0, 0, 0, 0], Verdict([], 4, False)),
        ([5, 8, 0, 0, 3, 0, 0], Verdict([0, 3], 3, True)),  # the second child of the first
        ([5, 9, 0, 0, 0, 0, 0], Verdict([0], 9, False)),
        ([6, 8, 7, 0, 0, 9, 2], Verdict([1, 4, 5], 2, True)),
        ([6, 8, 7, 0, 0, 1, 2], Verdict([1, 4], 1, False)),
        ([6, 8, 5, 9, 9, 9, 9], Verdict([1], 5, False)),  # the other branch's logits have no say
    ],
)
def test_greedy_trees(argmax_ids: list[int], verdict: Verdict) -> None:
    assert verify_greedy(TREE, argmax_ids) == verdict
    probs_NV = torch.zeros(7, 10).scatter_(1, torch.tensor(argmax_ids).unsqueeze(1), 1.0)
    for seed in range(20):  # a trunk without doubt
        assert verify_sampled(TREE, probs_NV, torch.Generator().manual_seed(seed)) == verdict


def point(*tokens: int) -> torch.Tensor:
    """Logits that leave one token a row."""
    logits = torch.full((len(tokens), 5), float("-inf"))
    return logits.scatter_(1, torch.tensor(tokens).unsqueeze(1), 0.0)


def drawn_chain(token_ids: list[int], probs_NV: torch.Tensor) -> Draft:
    """A chain whose tokens were drawn from ``probs_NV``."""
    return replace(Draft.chain(token_ids), probs=list(probs_NV))


def uniform(num_rows: int) -> torch.Tensor:
    return torch.full((num_rows, 5), 0.2)


@pytest.mark.parametrize(
    ("drafted", "trunk_says", "verdict"),
    [
        ([], [3], Verdict([], 3, True)),
        ([1, 2], [1, 2, 3], Verdict([0, 1], 3, True)),
        ([1, 2], [1, 4, 3], Verdict([0], 4, False)),
        ([1, 2], [0, 2, 3], Verdict([], 0, False)),
    ],
)
def test_a_trunk_without_doubt(drafted: list[int], trunk_says: list[int], verdict: Verdict) -> None:
    """A token with p = 0 is never accepted, whatever is drawn; one with p = 1 always."""
    for seed in range(200):
        draft = drawn_chain(drafted, uniform(len(drafted)))
        probs_NV = filtered_probs(point(*trunk_says), HOT)
        assert verify_sampled(draft, probs_NV, torch.Generator().manual_seed(seed)) == verdict


def test_the_smallest_random_number_accepts_nothing_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda *_, **__: torch.tensor(0.0, dtype=torch.float64))
    draft = drawn_chain([1], uniform(1))
    verdict = verify_sampled(draft, filtered_probs(point(3, 0), HOT), torch.Generator().manual_seed(0))
    assert verdict == Verdict([], 3, False)


def test_equal_laws_accept_everything() -> None:
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    for seed in range(200):
        draft = drawn_chain([1, 4, 0], filtered_probs(logits[:3], HOT))
        verdict = verify_sampled(draft, filtered_probs(logits, HOT), torch.Generator().manual_seed(seed))
        assert (verdict.num_accepted, verdict.all_accepted) == (3, True)


def test_a_rejected_token_is_not_drawn_again() -> None:
    """The replacement comes from where p exceeds q."""
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.0], [0.2] * 5]).log()
    draft = drawn_chain([3], torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0]]))
    verdicts = [
        verify_sampled(draft, filtered_probs(logits, HOT), torch.Generator().manual_seed(s)) for s in range(400)
    ]
    rejected = [v.next_token for v in verdicts if not v.all_accepted]
    assert set(rejected) == {0, 1, 2}
    assert 0.5 < len(rejected) / 400 < 0.7  # accepted with 0.4


def test_filters_hold_for_the_draft_too() -> None:
    """A drafted token outside the trunk's top-k is rejected, inside it judged by the re-normalised law."""
    params = SamplingParams(temperature=1.0, top_k=1)
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.0], [0.9, 0.1, 0.0, 0.0, 0.0]]).log()
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        probs_NV = filtered_probs(logits, params)
        assert verify_sampled(drawn_chain([2], uniform(1)), probs_NV, generator) == Verdict([], 3, False)
        assert verify_sampled(drawn_chain([3], uniform(1)), probs_NV, generator) == Verdict([0], 0, True)


# The law, by enumeration


class World:
    """A trunk and a drafter over ``size`` tokens: logits after every path, some of them far apart, some impossible."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size = size
        self._seed = seed

    def logits(self, path: list[int], who: str) -> torch.Tensor:
        number = sum((token + 1) * 7**i for i, token in enumerate(path)) * 2 + (who == "trunk")
        generator = torch.Generator().manual_seed(self._seed * 10_000 + number)
        return torch.randn(self.size, generator=generator, dtype=torch.float64) * 1.5

    def trunk(self, path: list[int], params: SamplingParams) -> torch.Tensor:
        return filtered_probs(self.logits(path, "trunk").unsqueeze(0), params)[0]


def grown(world: World, shape: Shape, params: SamplingParams) -> Draft:
    row = row_of([0], pools_of(8), params=params, vocab_size=world.size)
    grower = TreeGrower(row, shape)
    for _ in range(shape.depth):
        if grower.frontier:
            grower.grow(torch.stack([world.logits(path, "drafter") for path in grower.prefixes()]))
    return grower.finish()


def assert_law(
    monkeypatch: pytest.MonkeyPatch, world: World, draft_of: Callable[[], Draft], params: SamplingParams
) -> None:
    """What follows each path that a round accepts is the trunk's law there, to the last digits."""
    random = Random()
    reached: dict[tuple[int, ...], float] = defaultdict(float)
    law: dict[tuple[int, ...], torch.Tensor] = defaultdict(lambda: torch.zeros(world.size, dtype=torch.float64))

    def one_round() -> tuple[list[int], torch.Tensor]:
        draft = draft_of()
        prefixes = [[], *[draft.prefix(node) for node in range(len(draft))]]
        probs_NV = torch.stack([world.trunk(path, params) for path in prefixes])
        verdict = verify_sampled(draft, probs_NV, torch.Generator())
        assert verdict.next_token == -1
        assert verdict.all_accepted == (not draft.children(verdict.path[-1] if verdict.path else -1))
        return [draft.token_ids[node] for node in verdict.path], random.law

    with monkeypatch.context() as patch:
        random.install(patch)
        total = 0.0
        for probability, (path, last) in random.walk(one_round):
            total += probability
            for k in range(len(path) + 1):
                reached[tuple(path[:k])] += probability
                if k < len(path):
                    law[tuple(path[:k])][path[k]] += probability
                else:
                    law[tuple(path[:k])] += probability * last
    assert total == pytest.approx(1, abs=1e-9)
    assert len(reached) > 1, "nothing was ever accepted"
    for path, mass in reached.items():
        torch.testing.assert_close(law[path], mass * world.trunk(list(path), params), rtol=0, atol=1e-9)


SHAPES = [Shape.chain(1), Shape.chain(2), Shape(1, 2), Shape(1, 3), Shape(2, 4), Shape(2, 5)]
SETTINGS = {
    "T=1": HOT,
    "T=0.5": SamplingParams(temperature=0.5),
    "top_k=2": SamplingParams(temperature=1.0, top_k=2),  # fewer tokens than children, of another two than the trunk's
    "top_p=0.8, min_p=0.1": SamplingParams(temperature=1.3, top_p=0.8, min_p=0.1),
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_drawn_trees_keep_the_law(monkeypatch: pytest.MonkeyPatch, shape: Shape, setting: str) -> None:
    params = SETTINGS[setting]
    for seed in range(3 if shape.num_nodes < 4 else 1):
        world = World(4 if shape.num_nodes < 4 else 3, seed)
        assert_law(monkeypatch, world, lambda world=world: grown(world, shape, params), params)


def test_two_children_after_each_of_two_keep_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many draws as a level may have; the node counts are settled here, not by what is likely."""
    world = World(3, 4)

    def draft_of() -> Draft:
        draft = Draft()
        for parent in (-1, 0, 1):
            q_V = filtered_probs(world.logits(draft.prefix(parent), "drafter").unsqueeze(0), HOT)[0]
            left_V = q_V.clone()
            for _ in range(2):
                token_id = grow.draw(left_V, torch.Generator())
                draft.add(token_id, parent, q_V)
                left_V[token_id] = 0
        return draft

    assert_law(monkeypatch, world, draft_of, HOT)


@pytest.mark.parametrize(
    ("token_ids", "parents"),
    [
        ([2], [-1]),
        ([2, 0], [-1, -1]),
        ([2, 0, 1], [-1, -1, -1]),
        ([1, 2], [-1, 0]),
        ([1, 2, 0, 1, 0], [-1, -1, 0, 0, 1]),
    ],
    ids=str,
)
def test_certain_children_keep_the_law(
    monkeypatch: pytest.MonkeyPatch, token_ids: list[int], parents: list[int]
) -> None:
    """Look-up and grammar guess without a distribution, also tokens that the filters forbid."""
    for setting, params in SETTINGS.items():
        draft = Draft(token_ids, parents, [None] * len(parents))
        if setting == "T=1" or world_accepts(draft, params):
            assert_law(monkeypatch, World(4), lambda draft=draft: draft, params)


def world_accepts(draft: Draft, params: SamplingParams) -> bool:
    return any(World(4).trunk([], params)[draft.token_ids[node]] > 0 for node in draft.children(-1))


MISTAKES = {
    "q is not what is left of it": (verify, "_try", "q_V = q_V / q_V.sum()", "pass"),
    "q keeps a rejected sibling": (verify, "_try", "q_V[token_id] = 0", "pass"),
    "p is not normalised after a rejection": (verify, "_try", "u * q * mass <", "u * q <"),
    "the residual forgets that p is not": (verify, "_try", "p_V - mass * q_V", "p_V - q_V"),
    "a rejected sibling leaves p as it was": (verify, "_try", "p_V, mass = residual, left", "mass = left"),
    "certain children leave p as it was": (verify, "_try", "residual[token_id] = 0", "pass"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_enumeration_sees_a_mistake(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    """The classic ones of tree verification, made on purpose."""
    module, name, right, wrong = MISTAKES[mistake]
    source = inspect.getsource(getattr(module, name))
    assert source.count(right) == 1
    scope = dict(vars(module))
    exec(compile(source.replace(right, wrong), mistake, "exec"), scope)
    monkeypatch.setattr(module, name, scope[name])
    certain = Draft([0, 1], [-1, -1], [None] * 2)
    with pytest.raises(AssertionError):
        for seed in range(3):
            world = World(4, seed)
            if "certain" in mistake:
                assert_law(monkeypatch, world, lambda: certain, HOT)
            else:
                assert_law(monkeypatch, world, lambda world=world: grown(world, Shape(1, 3), HOT), HOT)


def test_the_enumeration_sees_siblings_that_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With replacement, while they are judged as without."""
    world = World(3)

    def draft_of() -> Draft:
        draft = Draft()
        q_V = filtered_probs(world.logits([], "drafter").unsqueeze(0), HOT)[0]
        for _ in range(2):
            draft.add(grow.draw(q_V, torch.Generator()), -1, q_V)
        return draft

    with pytest.raises(AssertionError):
        assert_law(monkeypatch, world, draft_of, HOT)
