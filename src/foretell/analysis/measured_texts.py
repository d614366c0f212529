"""Whether measured texts are such that their numbers mean anything (see `meaning`)."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.analysis.meaning import meaningless, meaningless_given
from foretell.evaluation.nll import mean_nll
from foretell.models.trunk import Trunk

Texts = Sequence[Sequence[int]]


def reasons_against(trunk: Trunk, prompts: Texts, outputs: Texts, eos_ignored: bool = False) -> list[str]:
    """Why acceptance and speed of these ``outputs`` mean little, a sentence each; all are token ids."""
    return meaningless(prompts, outputs, mean_nll(trunk, prompts), trunk.vocab_size, eos_ignored)


def reasons_against_texts(trunk: Trunk, texts: Texts) -> list[str]:
    """Why guesses at the tokens of these ``texts``, token ids, say little of what decoding will accept."""
    fitting = [text[: trunk.max_positions] for text in texts]
    return meaningless_given(texts, mean_nll(trunk, fitting), trunk.vocab_size, "texts")
