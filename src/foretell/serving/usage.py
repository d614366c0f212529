"""Usage of a request, and what its drafts came to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretell.types import AcceptanceStats, Completion


def usage_of(prompts: Sequence[Sequence[int]], completions: Sequence[Completion], details: bool) -> dict[str, Any]:
    """OpenAI's counts; a prompt counts once, EOS is a token of the answer. ``details``: with ``speculative``."""
    num_prompt = sum(map(len, prompts))
    num_completion = sum(len(done.token_ids) for done in completions)
    found: dict[str, Any] = {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_completion,
        "total_tokens": num_prompt + num_completion,
    }
    if details:
        stats = AcceptanceStats.total(done.stats for done in completions)
        found["speculative"] = {"num_passes": sum(done.num_rounds for done in completions), **stats.as_dict()}
    return found
