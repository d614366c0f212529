"""A group of requests through a batch with fewer places, step by step: rows join, advance by what is accepted, leave.

What ``bench`` does with batches (docs/benchmarks.md): about twice as many prompts as places, handed over at once; the
clock runs from the start to the last token. So the time holds the reading of prompts, beside rows that decode where
there are any, the heads' reading of them one step later, and steps with empty places. As the scheduler does it: a step
reads at most so many tokens, prompts in pieces of what is left; nothing is drafted past a text's last token but one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from foretell.decoding.shape import Shape
from foretell.planning.acceptance import tokens_per_pass
from foretell.planning.costs import Costs, PromptCosts

MAX_STEP_TOKENS = 512
"""Tokens of a step: the engine's default, which bench does not change (decoding.core.Limits)."""
_TRIALS = 32
"""Which drafts are accepted is drawn; the mean of so many draws moves by less than 1 %."""
_ENOUGH_TOKENS = 2**20
"""So many, over all draws: longer texts take fewer draws, since each of them is a mean of more steps already."""


@dataclass(frozen=True)
class Text:
    """One request: tokens of its prompt, None where nobody knows them, and of what is written."""

    prompt_tokens: int | None
    num_tokens: int


@dataclass(frozen=True)
class Drafts:
    """``conditional``: acceptance of each depth, given that of the one before; ``num_nodes``: drafted tokens a row."""

    conditional: Sequence[float] = ()
    num_nodes: int = 0

    @property
    def depth(self) -> int:
        """Levels."""
        return len(self.conditional)

    def nodes(self, depth: int) -> int:
        """Of a row that may draft so deep: a chain is cut, a tree keeps its nodes as far as its levels hold them."""
        return Shape(self.depth, self.num_nodes).cut(depth).most_nodes

    def advance(self, dice: random.Random, depth: int) -> int:
        """Tokens that a step adds to a row that was drafted ``depth`` deep."""
        taken = 1
        for alpha in self.conditional[:depth]:
            if dice.random() >= alpha:
                break
            taken += 1
        return taken


@dataclass
class _Row:
    """``unread``: tokens of the prompt, of ``prompt``; ``left``: tokens still to be written."""

    prompt: int
    unread: int
    left: int

    def depth(self, deepest: int) -> int:
        """As deep as it may be drafted."""
        return max(0, min(deepest, self.left - 1))


def group_seconds(costs: Costs, prompts: PromptCosts, batch: int, texts: Sequence[Text], drafts: Drafts) -> float:
    """Mean seconds from the start to the last token of ``texts``, ``batch`` at a time."""
    group = _Group(costs, prompts, batch, drafts)
    enough = _ENOUGH_TOKENS // sum(text.num_tokens for text in texts)
    trials = max(1, min(_TRIALS, enough)) if drafts.depth else 1
    return sum(group.seconds(texts) for _ in range(trials)) / trials


class _Group:
    def __init__(self, costs: Costs, prompts: PromptCosts, batch: int, drafts: Drafts) -> None:
        self._costs, self._prompts, self._batch, self._drafts = costs, prompts, batch, drafts
        self._expected = tokens_per_pass(drafts.conditional)
        self._known: dict[tuple[int, int, int, int], float] = {}
        self._dice = random.Random(0)

    def seconds(self, texts: Sequence[Text]) -> float:
        """Of one run, with draws of its own."""
        waiting = [_Row(text.prompt_tokens or 1, text.prompt_tokens or 1, text.num_tokens) for text in reversed(texts)]
        running: list[_Row] = []
        fresh: list[int] = []
        total = 0.0
        while waiting or running:
            decoding = [row for row in running if not row.unread]
            depths = [row.depth(self._drafts.depth) for row in decoding]
            total += self._step_s(depths)
            if fresh and any(depths):
                total += self._prompts.catch_up_s(sum(map(bool, depths)), max(depths), fresh)
            budget = MAX_STEP_TOKENS - len(decoding) - sum(map(self._drafts.nodes, depths))
            pieces, fresh = self._read(running, waiting, budget)
            if pieces:
                nodes = 1 + sum(map(self._drafts.nodes, depths)) / len(decoding) if decoding else 0
                total += self._prompts.join_s(len(decoding), nodes, pieces, len(fresh))
            for row, depth in zip(decoding, depths, strict=True):
                row.left -= self._drafts.advance(self._dice, depth)
            running = [row for row in running if row.left > 0]
        return total

    def _read(self, running: list[_Row], waiting: list[_Row], budget: int) -> tuple[list[int], list[int]]:
        """Tokens that each prompt's piece has, and the lengths of those that are read to their end."""
        pieces, ended = [], []
        reading = [row for row in running if row.unread]
        while budget > 0 and (reading or (waiting and len(running) < self._batch)):
            if reading:
                row = reading.pop(0)
            else:
                running.append(row := waiting.pop())
            piece = min(budget, row.unread)
            budget -= piece
            row.unread -= piece
            pieces.append(piece)
            if not row.unread:
                ended.append(row.prompt)
                row.left -= 1
        return pieces, ended

    def _step_s(self, depths: Sequence[int]) -> float:
        """Of the rows that decode, each drafted as deep as it may be; 0 without any."""
        if not depths:
            return 0.0
        deepest, num_drafting = max(depths), sum(map(bool, depths))
        num_nodes = sum(map(self._drafts.nodes, depths))
        key = (len(depths), num_drafting, deepest, num_nodes)
        if key not in self._known:
            seconds = self._costs.pass_s(len(depths), 1 + num_nodes / len(depths))
            if deepest:
                width = num_nodes / (num_drafting * deepest)
                seconds += self._costs.draft_s(num_drafting, deepest, self._expected, width)
            self._known[key] = seconds
        return self._known[key]
