"""Whether the texts of a bench or a comparison are such that their numbers mean anything (see `meaning`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foretell.analysis.meaning import meaningless
from foretell.analysis.texts import BenchPrompt
from foretell.evaluation.nll import mean_nll
from foretell.models.trunk import Trunk


def reasons_against(trunk: Trunk, prompts: Sequence[BenchPrompt], plain_texts: Iterable[Sequence[int]]) -> list[str]:
    """Why acceptance and speed on these prompts mean little, a sentence each; ``plain_texts``: depth 0's outputs."""
    ids = [prompt.token_ids for prompt in prompts]
    return meaningless(ids, list(plain_texts), mean_nll(trunk, ids), trunk.vocab_size, eos_ignored=False)
