"""ChainOrTree: keeps the kind that brings more tokens a second, and notices when that changes."""

from __future__ import annotations

import random

import pytest

from foretell.decoding.chain_or_tree import ChainOrTree


def simulate(tokens: dict[bool, float], seconds: dict[bool, float], num_steps: int, trees: ChainOrTree) -> float:
    """Tokens a second over steps whose tokens are whole numbers and whose seconds have outliers."""
    dice = random.Random(num_steps)
    total_tokens = total_seconds = 0.0
    for _ in range(num_steps):
        kind = trees.wants_tree
        num_tokens = int(tokens[kind]) + (dice.random() < tokens[kind] % 1)
        took = seconds[kind] * dice.uniform(0.97, 1.03) * (3 if dice.random() < 0.03 else 1)
        trees.observe(num_tokens, took)
        total_tokens, total_seconds = total_tokens + num_tokens, total_seconds + took
    return total_tokens / total_seconds


@pytest.mark.parametrize(("tree_tokens", "tree_s"), [(2.6, 1.1), (1.9, 1.3), (2.0, 1.0), (2.4, 2.0)])
def test_the_better_kind_is_kept(tree_tokens: float, tree_s: float) -> None:
    trees = ChainOrTree()
    tokens, seconds = {False: 1.8, True: tree_tokens}, {False: 1.0, True: tree_s}
    got = simulate(tokens, seconds, 1500, trees)
    best = max(tokens[kind] / seconds[kind] / 1.06 for kind in (False, True))
    assert got > 0.95 * best
    assert trees.keeps_tree == (tree_tokens / tree_s > 1.8)


def test_a_change_is_noticed() -> None:
    trees = ChainOrTree()
    simulate({False: 1.8, True: 2.6}, {False: 1.0, True: 1.1}, 400, trees)
    assert trees.keeps_tree
    simulate({False: 1.8, True: 1.5}, {False: 1.0, True: 1.1}, 1200, trees)
    assert not trees.keeps_tree


def test_nothing_is_known_of_what_was_not_tried() -> None:
    trees = ChainOrTree()
    trees.observe(2, 0.5)
    assert trees.tokens_per_s(tree=True) == 0
    assert trees.tokens_per_s(tree=False) == 4
