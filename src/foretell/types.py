"""Shared nouns of decoding, and the legend of tensor shape suffixes used everywhere.

Suffix letters: B rows · T positions of a text · N nodes of a step (pending tokens + drafts), or positions picked out of
a batch · M nodes of all rows that are judged · R packed rows of the training data · S cache entries · D hidden size ·
V vocabulary (or draft vocabulary) · K draft depth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

FinishReason = Literal["stop", "length", "abort"]
Origin = Literal["accepted", "recovered", "bonus"]
Depth = int | Literal["auto"]
Prompt = str | list[int] | list[dict[str, str]]


@dataclass
class Draft:
    """One row's drafted tree. Node n holds ``token_ids[n]`` and follows node ``parents[n]``, or the root where that is
    -1; parents come before their children, and children of one parent in the order in which they are tried.

    A chain is the tree with one branch: parents -1, 0, 1 and so on. ``probs[n]`` is the distribution (V,) that the
    token was drawn from, the same for all children of a parent, which were drawn without replacement. None where the
    token was certain: greedy drafting, look-up.
    """

    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    probs: list[torch.Tensor | None] = field(default_factory=list)

    @classmethod
    def chain(cls, token_ids: list[int]) -> Draft:
        """Certain tokens, one after the other."""
        return cls(token_ids, list(range(-1, len(token_ids) - 1)), [None] * len(token_ids))

    def add(self, token_id: int, parent: int, probs_V: torch.Tensor | None = None) -> int:
        """A new node; returns its number."""
        self.token_ids.append(token_id)
        self.parents.append(parent)
        self.probs.append(probs_V)
        return len(self.token_ids) - 1

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def is_chain(self) -> bool:
        """True where no node has a sibling."""
        return all(parent == n - 1 for n, parent in enumerate(self.parents))

    @property
    def depths(self) -> list[int]:
        """Depth of every node, 1 for children of the root."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return depths

    def children(self, node: int) -> list[int]:
        """Nodes that follow ``node`` (-1 = the root), in the order in which they are tried."""
        return [n for n, parent in enumerate(self.parents) if parent == node]

    def path(self, node: int) -> list[int]:
        """Nodes from the root's child down to ``node``; empty for -1, the root."""
        path: list[int] = []
        while node >= 0:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def prefix(self, node: int) -> list[int]:
        """Tokens of the path down to ``node``, its own included."""
        return [self.token_ids[n] for n in self.path(node)]


@dataclass
class Verdict:
    """What the trunk says of a draft: the accepted nodes, root's child first, and its own next token.

    ``all_accepted``: the path ends where the draft did, so that the next token is a bonus.
    """

    path: list[int]
    next_token: int
    all_accepted: bool

    @property
    def num_accepted(self) -> int:
        """Accepted tokens."""
        return len(self.path)


@dataclass
class AcceptanceStats:
    """Counts with vLLM's names. A round is one trunk pass that judged at least one drafted token.

    ``accepted_per_position[k-1]`` counts rounds whose draft was accepted at least up to depth k (unconditional);
    ``drafted_per_position[k-1]`` counts rounds that drafted that deep, ``reached_per_position[k-1]`` those of them
    whose depths before k were accepted. Every drafted token counts as drafted, also when the text ended before it was
    judged; so do all nodes of a tree, whose positions are its depths.
    """

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    drafted_per_position: list[int] = field(default_factory=list)
    reached_per_position: list[int] = field(default_factory=list)

    def count(self, depth: int, num_accepted: int, num_drafted: int | None = None) -> None:
        """Add one round that drafted ``depth`` deep, ``num_drafted`` nodes (None: a chain, as many as it is deep).

        A round without drafted tokens is not counted.
        """
        if depth == 0:
            return
        self.num_drafts += 1
        self.num_draft_tokens += depth if num_drafted is None else num_drafted
        self.num_accepted_tokens += num_accepted
        self._extend(depth)
        for k in range(depth):
            self.drafted_per_position[k] += 1
            self.reached_per_position[k] += k <= num_accepted
            self.accepted_per_position[k] += k < num_accepted

    @classmethod
    def total(cls, parts: Iterable[AcceptanceStats]) -> AcceptanceStats:
        """The sum of several rows' counts."""
        found = cls()
        for part in parts:
            found.add(part)
        return found

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
class TokenLogprob:
    """One token's natural log-probability, and ``top``: (token id, log-probability) of the likeliest, best first."""

    token_id: int
    logprob: float
    top: list[tuple[int, float]] = field(default_factory=list)


@dataclass
class Completion:
    """A finished request. ``token_ids``: all it produced, EOS included; ``text`` ends before EOS or a stop string.

    ``logprobs``: one entry an output token, ``prompt_logprobs`` one a prompt token (the first has none), where asked
    for. ``queue_s``: seconds that it waited for a place in the batch; None where it never got one.
    """

    prompt_token_ids: list[int]
    token_ids: list[int]
    text: str
    finish_reason: FinishReason
    stats: AcceptanceStats
    origins: list[Origin]
    num_rounds: int
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob | None] | None = None
    queue_s: float | None = field(default=None, compare=False)
