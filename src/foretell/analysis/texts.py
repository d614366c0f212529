"""What is decoded in a measurement, alone or in groups, and where two outputs part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretell.errors import UsageError

MIXED = "mixed"
"""Domain of a group whose prompts come from several."""


@dataclass(frozen=True)
class BenchPrompt:
    """A prompt as token ids, the class its numbers are reported under, and what a reader sees of it."""

    domain: str
    token_ids: list[int]
    text: str = ""


@dataclass(frozen=True)
class PromptGroup:
    """Prompts that are decoded together; ``indices``: their places in the whole list."""

    domain: str
    indices: list[int]
    prompts: list[BenchPrompt]

    @property
    def name(self) -> str:
        """``code, 16 prompts``."""
        return f"{self.domain}, {len(self.indices)} prompts"


def groups_of(prompts: Sequence[BenchPrompt], batch: int) -> list[PromptGroup]:
    """Groups of about 2 x ``batch`` prompts, so that rows join and leave, and of at least ``batch``.

    A group has prompts of one domain; where a domain has too few for that, all groups are mixed. Raises UsageError
    where there are fewer than ``batch`` prompts.
    """
    if len(prompts) < batch:
        raise UsageError(
            f"a batch of {batch} needs at least {batch} prompts, better {2 * batch}, and there are {len(prompts)}; "
            "give more prompts or a smaller batch"
        )
    by_domain: dict[str, list[int]] = {}
    for index, prompt in enumerate(prompts):
        by_domain.setdefault(prompt.domain, []).append(index)
    if min(map(len, by_domain.values())) < batch:
        by_domain = {MIXED: list(range(len(prompts)))}
    groups = []
    for domain, indices in by_domain.items():
        num_groups = max(1, round(len(indices) / (2 * batch)))
        for start in range(num_groups):
            taken = indices[start::num_groups]
            groups.append(PromptGroup(domain, taken, [prompts[i] for i in taken]))
    return groups


def first_difference(expected: Sequence[int], got: Sequence[int]) -> int | None:
    """Index of the first token that differs (one output may just be shorter); None where both are equal."""
    for position, (a, b) in enumerate(zip(expected, got, strict=False)):
        if a != b:
            return position
    return None if len(expected) == len(got) else min(len(expected), len(got))
