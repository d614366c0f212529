"""Whether measured texts are such that their numbers mean anything (see `meaning`)."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.analysis.meaning import meaningless
from foretell.evaluation.nll import mean_nll
from foretell.models.trunk import Trunk

Texts = Sequence[Sequence[int]]


def reasons_against(trunk: Trunk, prompts: Texts, outputs: Texts, eos_ignored: bool = False) -> list[str]:
    """Why acceptance and speed of these ``outputs`` mean little, a sentence each; all are token ids."""
    return meaningless(prompts, outputs, mean_nll(trunk, prompts), trunk.vocab_size, eos_ignored)
