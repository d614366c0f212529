"""What the lossless tests share: drafts of any quality on any trunk, and the rule that excuses a near tie."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from foretell.decoding import heads_drafter
from foretell.decoding.parallel_drafter import ParallelDrafter
from foretell.decoding.sequential_drafter import SequentialDrafter
from foretell.models.trunk import Trunk
from foretell.types import Completion, Draft

NEAR_TIE = 1e-4
"""Gap between the two best logits below which fp32 rounding may choose either."""

QUALITIES: dict[str, Callable[[int], bool] | None] = {
    "random": None,  # what the heads really say
    "perfect": lambda index: True,
    "wrong": lambda index: False,
    "mixed": lambda index: (index * index + index // 3) % 5 != 0,
}
"""Which output tokens (by index) are drafted right."""


def script_drafts(monkeypatch: pytest.MonkeyPatch, texts: Iterable[Completion], quality: str) -> None:
    """Heads run as ever, but what they draft is replaced: by the known text, or by another token.

    In a tree the known text is the last of its siblings, so that a branch other than the first is accepted, and it is
    kept as if it were certain; nowhere else does its token lie.
    """
    known = {tuple(text.prompt_token_ids): text.token_ids for text in texts}
    is_right = QUALITIES[quality]

    class Scripted:
        def _choose(self, logits_FV: torch.Tensor, growers: list[Any]) -> None:
            super()._choose(logits_FV, growers)  # type: ignore[misc]
            for grower in growers:
                self._replace(grower, grower.depth)

        def _extend_chains(self, growers: list[Any]) -> bool:
            done: bool = super()._extend_chains(growers)  # type: ignore[misc]
            for grower in growers if done else ():
                for depth in range(1, grower.depth + 1):
                    self._replace(grower, depth)
            return done

        def _replace(self, grower: Any, depth: int) -> None:
            """What was drafted at ``depth``."""
            row, draft = grower.row, grower.draft
            text = known[tuple(row.prompt_token_ids)]
            start, index = len(row.token_ids), len(row.token_ids) + depth - 1
            if is_right is None or index >= len(text):
                return
            on_path = [n for n, d in enumerate(draft.depths) if d == depth and _follows(draft, n, text[start:])]
            for node in on_path:
                if draft.token_ids[node] == text[index]:
                    draft.token_ids[node] = (text[index] + 1) % self.heads.trunk.vocab_size  # type: ignore[attr-defined]
            if on_path and is_right(index):
                node, parent = on_path[-1], draft.parents[on_path[-1]]
                draft.token_ids[node] = text[index]
                if not grower.is_chain:
                    grower._log_mass[node] = grower._log_mass[parent] if parent >= 0 else 0.0
                    if node not in grower.frontier:
                        grower.frontier = sorted([*grower.frontier[:-1], node])

    for drafter in (SequentialDrafter, ParallelDrafter):
        monkeypatch.setattr(heads_drafter, drafter.__name__, type(drafter.__name__, (Scripted, drafter), {}))


def _follows(draft: Draft, node: int, text: list[int]) -> bool:
    """True where the tokens before ``node`` are those of ``text``."""
    above = draft.prefix(draft.parents[node])
    return above == text[: len(above)]


def assert_same_text(trunk: Trunk, prompt: list[int], expected: list[int], got: list[int]) -> None:
    """Equal ids; or the first difference lies between two tokens that nearly tie, by logits computed anew."""
    if got == expected:
        return
    position = next((i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b), None)
    assert position is not None, f"one text is a part of the other: {len(expected)} and {len(got)} tokens"
    with torch.no_grad():
        logits = trunk.model(input_ids=torch.tensor([prompt + expected[:position]]), use_cache=False).logits[0, -1]
    best = logits.max()
    gaps = [float(best - logits[token]) for token in (expected[position], got[position])]
    assert max(gaps) < NEAR_TIE, (
        f"token {position} is {got[position]} instead of {expected[position]}; below the best logit by {gaps}"
    )
