"""All that chance may do: a procedure is run once for every outcome of its random choices, with its probability."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
import torch

from foretell.decoding import grow, verify

Result = TypeVar("Result")


@dataclass
class Chance:
    """One run: ``script`` says how the first choices fall; later ones fall on their first possible outcome."""

    script: list[int]
    probability: float = 1.0
    num_choices: int = 0
    others: list[list[int]] = field(default_factory=list)

    def choose(self, weights: Sequence[float]) -> int:
        """The index of the outcome; the weights need not sum to one."""
        total = sum(weights)
        possible = [i for i, weight in enumerate(weights) if weight > 0]
        if self.num_choices < len(self.script):
            chosen = self.script[self.num_choices]
        else:
            chosen = possible[0]
            self.others += [[*self.script, i] for i in possible[1:]]
            self.script = [*self.script, chosen]
        self.num_choices += 1
        self.probability *= weights[chosen] / total
        return chosen


class Uniform:
    """A number drawn from [0, 1), times ``scale``; comparing it is a choice."""

    def __init__(self, chance: Chance, scale: float = 1.0) -> None:
        self.chance = chance
        self.scale = scale

    def item(self) -> Uniform:
        return self

    def __mul__(self, factor: float) -> Uniform:
        return Uniform(self.chance, self.scale * factor)

    __rmul__ = __mul__

    def __lt__(self, limit: float) -> bool:
        share = 1.0 if limit > 0 else 0.0
        if self.scale > 0:
            share = min(1.0, max(0.0, limit / self.scale))
        return self.chance.choose([share, 1 - share]) == 0


@dataclass
class Random:
    """Stands in for the random numbers of drafting and verifying. ``law``: what the last token was drawn from."""

    chance: Chance = field(default_factory=lambda: Chance([]))
    law: torch.Tensor = field(default_factory=lambda: torch.empty(0))

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Random:
        monkeypatch.setattr(verify.torch, "rand", lambda *_, **__: Uniform(self.chance))
        monkeypatch.setattr(verify, "draw", self._last)
        monkeypatch.setattr(grow, "draw", lambda probs_V, _: self.chance.choose(probs_V.tolist()))
        return self

    def _last(self, probs_V: torch.Tensor, _: torch.Generator) -> int:
        self.law = probs_V / probs_V.sum()
        return -1

    def walk(self, procedure: Callable[[], Result]) -> Iterator[tuple[float, Result]]:
        """(probability, result) of every outcome."""
        scripts: list[list[int]] = [[]]
        while scripts:
            self.chance = Chance(scripts.pop())
            result = procedure()
            scripts += self.chance.others
            yield self.chance.probability, result
