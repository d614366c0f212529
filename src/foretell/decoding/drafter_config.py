"""DrafterConfig: which drafter an engine makes, described before the number of slots is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from foretell.config import DrafterKind
from foretell.decoding.blocks import BlockPool
from foretell.decoding.drafter import Drafter
from foretell.decoding.heads_drafter import heads_drafter
from foretell.decoding.memory import block_num_bytes, heads_block_num_bytes
from foretell.decoding.model_drafter import ModelDrafter, check_vocabulary
from foretell.decoding.ngram_drafter import NgramDrafter
from foretell.decoding.stacked_drafter import StackedDrafter
from foretell.errors import UsageError
from foretell.models.mtp_model import MTPModel


@dataclass(frozen=True)
class DrafterConfig:
    """``kind``: "heads", "ngram" (look-up in the row's own text), "model" (``draft_model``), or "ngram+heads" and
    "ngram+model": the second drafts where look-up finds nothing.

    ``draft_model``: a small model of the same vocabulary, as ``foretell.load`` gives it; if it has heads, they draft
    from the second token on.
    ``max_n``, ``min_n``: longest and shortest n-gram that is looked up; ``min_n`` left out is 1, and 2 before another
    drafter, which guesses better than a single token's last successor. Raises UsageError for what does not fit.
    """

    kind: DrafterKind
    draft_model: MTPModel | None = None
    max_n: int = 3
    min_n: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(DrafterKind):
            raise UsageError(f"drafter {self.kind!r} is not allowed; give one of {', '.join(get_args(DrafterKind))}")
        if "model" in self.parts and not isinstance(self.draft_model, MTPModel):
            raise UsageError(
                f"drafter {self.kind} needs a draft model, and {self.draft_model!r} is none; give draft_model="
                "foretell.load(...) of a small model with the same vocabulary"
            )
        if "model" not in self.parts and self.draft_model is not None:
            raise UsageError(f"drafter {self.kind} uses no draft model; leave it out, or give model or ngram+model")
        if self.min_n is None:
            object.__setattr__(self, "min_n", 1 if self.max_n == 1 else len(self.parts))
        if not (type(self.min_n) is type(self.max_n) is int and 1 <= self.min_n <= self.max_n):
            raise UsageError(f"n-grams of {self.min_n!r} to {self.max_n!r} tokens: give 1 <= min_n <= max_n")

    @classmethod
    def resolve(cls, drafter: DrafterKind | DrafterConfig | None, model: MTPModel) -> DrafterConfig | None:
        """Checked for ``model``. A name stands for its defaults, None for heads, or no drafter where it has none."""
        if drafter is None:
            return None if model.heads is None else cls("heads")
        config = drafter if isinstance(drafter, DrafterConfig) else cls(drafter)
        config.check(model)
        return config

    @property
    def parts(self) -> list[str]:
        """The single drafters, in the order in which they are asked."""
        return self.kind.split("+")

    def check(self, model: MTPModel) -> None:
        """Raise UsageError where ``model`` cannot be drafted for in this way."""
        if "heads" in self.parts and model.heads is None:
            raise UsageError(
                f"drafter {self.kind}: {model.trunk.name} has no heads; give heads (an adapter folder), "
                "or another drafter"
            )
        if self.draft_model is None:
            return
        check_vocabulary(model.trunk, self.draft_model.trunk)
        if self.draft_model.trunk.is_recurrent:
            raise UsageError(
                f"draft model {self.draft_model.trunk.name} has recurrent layers, whose guesses Foretell undoes "
                "for a trunk only; give a draft model whose layers are all attention"
            )

    @property
    def branches(self) -> bool:
        """True where trees are drafted: by heads, the model's own or the draft model's; others guess one token each."""
        return "heads" in self.parts or (self.draft_model is not None and self.draft_model.heads is not None)

    def max_depth(self, model: MTPModel) -> int | None:
        """Deepest draft there can be; None where only heads with a module a depth would have a limit."""
        return model.heads.config.max_depth if self.kind == "heads" and model.heads is not None else None

    def block_num_bytes(self, model: MTPModel) -> int:
        """Keys and values of one block of entries in the drafter's caches."""
        total = heads_block_num_bytes(model.heads) if "heads" in self.parts else 0
        if self.draft_model is not None:
            total += sum(block_num_bytes(self.draft_model.trunk).values())
            total += heads_block_num_bytes(self.draft_model.heads)
        return total

    def build(self, model: MTPModel, pools: dict[str, BlockPool]) -> Drafter:
        """The drafter for rows whose blocks come from ``pools``."""
        made = [self._build(part, model, pools) for part in self.parts]
        return made[0] if len(made) == 1 else StackedDrafter(made)

    def _build(self, part: str, model: MTPModel, pools: dict[str, BlockPool]) -> Drafter:
        if part == "ngram":
            assert self.min_n is not None
            return NgramDrafter(self.max_n, self.min_n)
        window = model.trunk.max_positions
        if part == "model":
            assert self.draft_model is not None
            return ModelDrafter(self.draft_model, pools, window)
        assert model.heads is not None
        return heads_drafter(model.heads, pools, window)
