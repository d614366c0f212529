"""PlanModel: the sizes of a trunk and its heads that decide what a pass costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from foretell.config import HeadsConfig
from foretell.planning.layer_caches import LayerCache
from foretell.planning.stack import Stack


@dataclass(frozen=True)
class Linear:
    """``count`` matrices of one shape that a token passes through one by one."""

    num_out: int
    num_in: int
    count: int


def linears_of(shapes: Mapping[str, tuple[int, ...]]) -> tuple[Linear, ...]:
    """Matrices by shape, largest first; stacked experts are none."""
    counts = Counter(shape for shape in shapes.values() if len(shape) == 2)
    return tuple(Linear(num_out, num_in, count) for (num_out, num_in), count in sorted(counts.items(), reverse=True))


@dataclass(frozen=True)
class HeadModel:
    """Heads. ``stack``: one module, and the output matrix that it projects with, shared or its own.

    ``parameters``: of one module, without what it shares with the trunk; ``distinct``: a module of its own at every
    depth, else one for all. ``max_depth``: where the modules end, None = nowhere. ``origin``: where the sizes are from.
    ``config``: of an adapter's heads; None for sequential ones of one layer a module.
    """

    stack: Stack
    parameters: int
    cache: LayerCache
    distinct: bool = False
    max_depth: int | None = None
    origin: str = ""
    linears: tuple[Linear, ...] = ()
    draft_vocab: int | None = None
    config: HeadsConfig | None = field(default=None, repr=False, compare=False)

    @property
    def kind(self) -> str:
        """As ``HeadsConfig`` calls it."""
        return "sequential" if self.config is None else self.config.kind

    @property
    def reads_tokens(self) -> bool:
        """True for sequential heads; parallel and Medusa heads read the trunk's states alone."""
        return self.kind == "sequential"

    @property
    def attends(self) -> bool:
        """True where a module has an attention layer, and keeps what it has read."""
        return self.cache.num_layers > 0

    def num_read(self, level: int, num_true: float, width: float) -> float:
        """Tokens a row that the module of ``level`` (from 1) reads, ``num_true`` being new and ``width`` the frontier.

        The first level, and every one of distinct modules, reads what is new; one module for all depths then reads its
        frontier. A module without attention reads the newest state (decoding/parallel_drafter.py).
        """
        if not self.attends:
            return 1.0
        return num_true if level == 1 or self.distinct else width

    def num_projected(self, level: int, width: float) -> float:
        """Tokens a row that get logits: the newest one, or a frontier where every branch has a guess of its own."""
        return width if level > 1 and self.reads_tokens else 1.0

    def num_modules(self, depth: int) -> int:
        """Modules in memory for drafts of ``depth`` tokens."""
        return 0 if depth == 0 else depth if self.distinct else 1


@dataclass(frozen=True)
class PlanModel:
    """``parameters``: of the trunk, in all; ``stack``: those a token passes through; ``caches``: by kind of layer."""

    name: str
    hidden_size: int
    vocab_size: int
    num_layers: int
    parameters: int
    stack: Stack
    caches: tuple[LayerCache, ...]
    heads: HeadModel
    linears: tuple[Linear, ...] = ()
    config: Any = field(default=None, repr=False, compare=False)
    """transformers' config of the text model, for a small model with the same attention."""

    def row_numbers(self, context: float) -> float:
        """Numbers that one row of the batch keeps in the trunk: keys, values, states."""
        return sum(cache.row_numbers(context) for cache in self.caches)

    def with_heads(self, heads: HeadModel) -> PlanModel:
        """The same trunk with other heads."""
        return replace(self, heads=heads)

    def with_draft_vocab(self, num_rows: int) -> PlanModel:
        """Heads that project ``num_rows`` of the vocabulary only."""
        output = num_rows * self.hidden_size
        stack = replace(self.heads.stack, output=output)
        return self.with_heads(replace(self.heads, stack=stack, draft_vocab=num_rows))
