"""PlanModel: the sizes of a trunk and its heads that decide what a pass costs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from foretell.planning.layer_caches import LayerCache
from foretell.planning.stack import Stack


@dataclass(frozen=True)
class Linear:
    """``count`` matrices of one shape that a token passes through one by one."""

    num_out: int
    num_in: int
    count: int


@dataclass(frozen=True)
class HeadModel:
    """Sequential heads. ``stack``: one module, and the output matrix that it projects with, shared or its own.

    ``parameters``: of one module, without what it shares with the trunk; ``distinct``: a module of its own at every
    depth, else one for all. ``max_depth``: where the modules end, None = nowhere. ``origin``: where the sizes are from.
    """

    stack: Stack
    parameters: int
    cache: LayerCache
    distinct: bool = False
    max_depth: int | None = None
    origin: str = ""
    linears: tuple[Linear, ...] = ()
    draft_vocab: int | None = None

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
