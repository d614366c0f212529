"""What ``foretell generate`` shows of completions: text, one line of numbers, and values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from foretell.types import AcceptanceStats

if TYPE_CHECKING:
    from foretell.config import SamplingParams
    from foretell.types import Completion, TokenLogprob


def text_of(completions: Sequence[Completion]) -> str:
    """The text; of several completions each under a line that counts them."""
    if len(completions) == 1:
        return completions[0].text
    count = len(completions)
    return "\n".join(f"--- {i} of {count} ---\n{done.text}" for i, done in enumerate(completions, start=1))


def stats_line(completions: Sequence[Completion], elapsed_s: float) -> str:
    """Tokens, speed and acceptance of all completions together."""
    num_tokens, stats = sum(len(done.token_ids) for done in completions), AcceptanceStats()
    for done in completions:
        stats.add(done.stats)
    reasons = dict.fromkeys(done.finish_reason for done in completions)
    parts = [
        f"{num_tokens} tokens",
        f"{num_tokens / elapsed_s:.1f} tokens/s with prefill",
        f"ended by {' and '.join(reasons)}",
    ]
    if (length := stats.mean_acceptance_length) is None:
        parts.append("mean acceptance length n/a (nothing drafted)")
    else:
        rates = " ".join(f"{rate:.2f}" for rate in stats.acceptance_by_depth)
        parts += [f"mean acceptance length {length:.2f}", f"acceptance by depth {rates}"]
    return " | ".join(parts)


def settings(params: SamplingParams) -> dict[str, Any]:
    """Every sampling parameter as a plain value for JSON; the seed is the one that was drawn where none was given."""
    return {name: value for name, value in asdict(params).items() if name != "logits_processors"}


def as_dict(done: Completion, tokenizer: Any) -> dict[str, Any]:
    """Plain values for JSON; log-probabilities only where they were asked for."""
    values: dict[str, Any] = {
        "text": done.text,
        "token_ids": done.token_ids,
        "finish_reason": done.finish_reason,
        "num_rounds": done.num_rounds,
        "stats": done.stats.as_dict(),
    }
    for name, entries in (("logprobs", done.logprobs), ("prompt_logprobs", done.prompt_logprobs)):
        if entries is not None:
            values[name] = [None if entry is None else _logprob(entry, tokenizer) for entry in entries]
    return values


def _logprob(entry: TokenLogprob, tokenizer: Any) -> dict[str, Any]:
    top = [_token(token_id, logprob, tokenizer) for token_id, logprob in entry.top]
    return {**_token(entry.token_id, entry.logprob, tokenizer), "top": top}


def _token(token_id: int, logprob: float, tokenizer: Any) -> dict[str, Any]:
    text = None if tokenizer is None else tokenizer.decode([token_id])
    return {"token_id": token_id, "token": text, "logprob": logprob}
