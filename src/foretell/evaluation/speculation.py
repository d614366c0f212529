"""What speculation did while something else was measured: tokens, seconds, acceptance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from foretell.types import AcceptanceStats, Completion


@dataclass
class Speculation:
    """Completions of one kind, and the seconds they took, prompts included, batch and all.

    ``prompts`` and ``outputs`` are their token ids, for checks of what was measured.
    """

    name: str
    elapsed_s: float = 0.0
    stats: AcceptanceStats = field(default_factory=AcceptanceStats)
    prompts: list[list[int]] = field(default_factory=list)
    outputs: list[list[int]] = field(default_factory=list)
    eos_ignored: bool = False

    def add(self, completions: Iterable[Completion], elapsed_s: float, eos_ignored: bool = False) -> None:
        """Count more of them; ``eos_ignored``: at least one was to go on behind EOS."""
        self.elapsed_s += elapsed_s
        self.eos_ignored |= eos_ignored
        for done in completions:
            self.stats.add(done.stats)
            self.prompts.append(done.prompt_token_ids)
            self.outputs.append(done.token_ids)

    @property
    def num_tokens(self) -> int:
        """Tokens produced, EOS included."""
        return sum(map(len, self.outputs))

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens produced a second, the reading of prompts included; None before anything was."""
        return self.num_tokens / self.elapsed_s if self.elapsed_s > 0 and self.num_tokens else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "num_requests": len(self.outputs),
            "num_tokens": self.num_tokens,
            "elapsed_s": self.elapsed_s,
            "tokens_per_s": self.tokens_per_s,
            **self.stats.as_dict(),
        }
