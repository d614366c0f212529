"""Settings with their checks: how a head is built, how a request is sampled. No torch import."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from foretell.errors import CheckpointError, SamplingError

GREEDY_TEMPERATURE = 1e-4
"""Temperatures at or below this are greedy: argmax, no random number drawn."""


@dataclass(frozen=True)
class SamplingParams:
    """How one request is sampled and when it stops. ``temperature=0`` is greedy.

    Order of the filters: temperature, top-k, top-p on the re-normalised rest, min-p relative to the largest.
    """

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] | list[str] | str | None = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        stop = () if self.stop is None else (self.stop,) if isinstance(self.stop, str) else self.stop
        if not isinstance(stop, (tuple, list)) or any(not isinstance(s, str) or not s for s in stop):
            raise _wrong("stop", self.stop, "non-empty strings")
        object.__setattr__(self, "stop", tuple(stop))
        if not _is_int(self.max_tokens) or self.max_tokens < 1:
            raise _wrong("max_tokens", self.max_tokens, "an integer of at least 1")
        if not _is_number(self.temperature) or not 0 <= self.temperature <= 100:
            raise _wrong("temperature", self.temperature, "a number from 0 (greedy) to 100")
        if not _is_int(self.top_k) or self.top_k < 0:
            raise _wrong("top_k", self.top_k, "an integer of at least 0 (0 = off)")
        if not _is_number(self.top_p) or not 0 < self.top_p <= 1:
            raise _wrong("top_p", self.top_p, "a number above 0 and at most 1 (1 = off)")
        if not _is_number(self.min_p) or not 0 <= self.min_p <= 1:
            raise _wrong("min_p", self.min_p, "a number from 0 (off) to 1")
        if self.seed is not None and (not _is_int(self.seed) or not 0 <= self.seed < 2**63):
            raise _wrong("seed", self.seed, "an integer from 0 to 2**63 - 1, or none")

    @property
    def greedy(self) -> bool:
        """True where the argmax is taken and no random number is drawn."""
        return self.temperature <= GREEDY_TEMPERATURE


def _wrong(field: str, value: object, allowed: str) -> SamplingError:
    return SamplingError(f"{value!r} is not allowed; give {allowed}", field)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class HeadsConfig:
    """Conventions of sequential heads, stored with them: checkpoints differ, and a wrong one costs acceptance silently.

    ``num_modules`` distinct modules; with ``unrolled`` the one module serves every depth and ``num_depths`` is the
    depth it was trained for. ``hidden_source``: trunk state after ("post") or before ("pre") its final norm.
    ``concat``: which half of eh_proj's input comes first. ``feedback``: state passed to the next depth, after
    ("normed") or before ("raw") the head's own final norm. ``draft_vocab_size``: rows of the draft vocabulary, 0 = all.
    ``max_positions``: the head's own window, 0 = the trunk's.
    """

    kind: Literal["sequential"] = "sequential"
    num_modules: int = 1
    num_depths: int = 3
    unrolled: bool = True
    hidden_source: Literal["post", "pre"] = "post"
    concat: Literal["embedding_first", "hidden_first"] = "embedding_first"
    feedback: Literal["normed", "raw"] = "normed"
    final_norm: Literal["own", "trunk"] = "own"
    own_output: bool = False
    draft_vocab_size: int = 0
    max_positions: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        allowed = {
            "kind": ("sequential",),
            "hidden_source": ("post", "pre"),
            "concat": ("embedding_first", "hidden_first"),
            "feedback": ("normed", "raw"),
            "final_norm": ("own", "trunk"),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise CheckpointError(f"heads: {name} is {getattr(self, name)!r}; allowed: {', '.join(values)}")
        if self.num_modules < 1 or self.num_depths < 1:
            raise CheckpointError(
                f"heads: num_modules {self.num_modules} and num_depths {self.num_depths} must be at least 1"
            )
        if self.unrolled and self.num_modules != 1:
            raise CheckpointError(f"heads: unrolled needs num_modules 1, got {self.num_modules}")
        if not self.unrolled and self.num_depths != self.num_modules:
            raise CheckpointError(
                f"heads: {self.num_modules} distinct modules serve exactly that many depths, "
                f"got num_depths {self.num_depths}"
            )

    @property
    def max_depth(self) -> int | None:
        """Deepest draft these heads can make: the number of distinct modules, or None (no limit) when unrolled."""
        return None if self.unrolled else self.num_modules

    def to_dict(self) -> dict[str, Any]:
        """Plain values for ``mtp_config.json``."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> HeadsConfig:
        """Build from stored values; an unknown key is an error, not a silent default."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise CheckpointError(f"heads: unknown settings {', '.join(unknown)}; known: {', '.join(sorted(known))}")
        return cls(**values)
