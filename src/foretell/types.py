"""Shared nouns of decoding, and the legend of tensor shape suffixes used everywhere.

Suffix letters: B rows · T positions of a text · N nodes of a step (pending tokens + drafts), or positions picked out of
a batch · M nodes of all rows that are judged · R packed rows of the training data · S cache entries · D hidden size ·
V vocabulary (or draft vocabulary) · K draft depth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch

FinishReason = Literal["stop", "length"]
Origin = Literal["accepted", "recovered", "bonus"]
Prompt = str | list[int] | list[dict[str, str]]


@dataclass
class Draft:
    """One row's drafted chain: ``token_ids[k-1]`` is the token guessed at depth k.

    ``probs_KV`` is the distribution each token was drawn from, over the full vocabulary; None where every token was
    certain: greedy drafting, look-up.
    """

    token_ids: list[int] = field(default_factory=list)
    probs_KV: torch.Tensor | None = None


@dataclass
class Verdict:
    """What the trunk says of a draft: how many of its tokens are accepted, and the trunk's own next token."""

    num_accepted: int
    next_token: int
    all_accepted: bool


@dataclass
class AcceptanceStats:
    """Counts with vLLM's names. A round is one trunk pass that judged at least one drafted token.

    ``accepted_per_position[k-1]`` counts rounds whose draft was accepted at least up to depth k (unconditional);
    ``drafted_per_position[k-1]`` counts rounds that drafted that deep, ``reached_per_position[k-1]`` those of them
    whose depths before k were accepted. Every drafted token counts as drafted, also when the text ended before it was
    judged.
    """

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    drafted_per_position: list[int] = field(default_factory=list)
    reached_per_position: list[int] = field(default_factory=list)

    def count(self, num_drafted: int, num_accepted: int) -> None:
        """Add one round; a round without drafted tokens is not counted."""
        if num_drafted == 0:
            return
        self.num_drafts += 1
        self.num_draft_tokens += num_drafted
        self.num_accepted_tokens += num_accepted
        self._extend(num_drafted)
        for k in range(num_drafted):
            self.drafted_per_position[k] += 1
            self.reached_per_position[k] += k <= num_accepted
            self.accepted_per_position[k] += k < num_accepted

    def add(self, other: AcceptanceStats) -> None:
        """Sum another row's counts into this one."""
        self.num_drafts += other.num_drafts
        self.num_draft_tokens += other.num_draft_tokens
        self.num_accepted_tokens += other.num_accepted_tokens
        self._extend(len(other.drafted_per_position))
        for k in range(len(other.drafted_per_position)):
            self.drafted_per_position[k] += other.drafted_per_position[k]
            self.reached_per_position[k] += other.reached_per_position[k]
            self.accepted_per_position[k] += other.accepted_per_position[k]

    def _extend(self, depth: int) -> None:
        for counts in (self.drafted_per_position, self.reached_per_position, self.accepted_per_position):
            counts.extend([0] * (depth - len(counts)))

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted tokens; None (print "n/a") before the first round."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens per round, the trunk's own token included; None before the first round."""
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else None

    @property
    def acceptance_by_depth(self) -> list[float]:
        """Unconditional: rounds accepted up to depth k, over rounds that drafted that deep."""
        return [a / d for a, d in zip(self.accepted_per_position, self.drafted_per_position, strict=True)]

    @property
    def conditional_acceptance_by_depth(self) -> list[float | None]:
        """Depth k accepted, given that depth k-1 was (of the rounds that drafted depth k)."""
        return [
            accepted / reached if reached else None
            for accepted, reached in zip(self.accepted_per_position, self.reached_per_position, strict=True)
        ]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "num_drafts": self.num_drafts,
            "num_draft_tokens": self.num_draft_tokens,
            "num_accepted_tokens": self.num_accepted_tokens,
            "num_accepted_tokens_per_pos": self.accepted_per_position,
            "num_draft_tokens_per_pos": self.drafted_per_position,
            "acceptance_rate": self.acceptance_rate,
            "mean_acceptance_length": self.mean_acceptance_length,
            "acceptance_by_depth": self.acceptance_by_depth,
            "conditional_acceptance_by_depth": self.conditional_acceptance_by_depth,
        }


@dataclass
class Completion:
    """A finished request. ``token_ids``: all it produced, EOS included; ``text`` ends before EOS or a stop string."""

    prompt_token_ids: list[int]
    token_ids: list[int]
    text: str
    finish_reason: FinishReason
    stats: AcceptanceStats
    origins: list[Origin]
    num_rounds: int
