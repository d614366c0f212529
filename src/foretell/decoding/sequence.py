"""Sequence: one request while it decodes; its stop rules are checked token by token."""

from __future__ import annotations

import secrets
from typing import Any

import torch

from foretell.config import SamplingParams
from foretell.types import AcceptanceStats, Completion, FinishReason, Origin, Verdict


class Sequence:
    """Prompt and output of one row. Between steps the caches hold all its tokens but the last, the root."""

    def __init__(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        depth: int,
        window: int,
        eos_token_ids: frozenset[int],
        tokenizer: Any,
    ) -> None:
        self.prompt_token_ids = prompt_token_ids
        self.params = params
        self.depth = depth
        self.slot = -1
        self.token_ids: list[int] = []
        self.origins: list[Origin] = []
        self.stats = AcceptanceStats()
        self.num_rounds = 0
        self.finish_reason: FinishReason | None = None
        self.generator = torch.Generator().manual_seed(secrets.randbits(63) if params.seed is None else params.seed)
        self._window = window
        self._eos_token_ids = frozenset() if params.ignore_eos else eos_token_ids
        self._tokenizer = tokenizer
        self._stops = tuple(params.stop or ())

    def __len__(self) -> int:
        return len(self.prompt_token_ids) + len(self.token_ids)

    def tokens_from(self, index: int) -> list[int]:
        """Tokens of prompt and output from ``index`` on."""
        num_prompt = len(self.prompt_token_ids)
        if index >= num_prompt:
            return self.token_ids[index - num_prompt :]
        return self.prompt_token_ids[index:] + self.token_ids

    @property
    def depth_limit(self) -> int:
        """Deepest draft that can still be used: not past max_tokens or the window, and none before the first token."""
        if not self.token_ids:
            return 0
        left = min(self.params.max_tokens - len(self.token_ids), self._window - len(self))
        return max(0, min(self.depth, left - 1))

    def commit(self, drafted: list[int], verdict: Verdict) -> int:
        """Take the accepted tokens and the trunk's own; returns how many tokens were taken before the text ended."""
        self.num_rounds += 1
        last: Origin = "bonus" if verdict.all_accepted and drafted else "recovered"
        taken = [(token_id, "accepted") for token_id in drafted[: verdict.num_accepted]]
        num_taken = num_accepted = 0
        for token_id, origin in [*taken, (verdict.next_token, last)]:
            self.token_ids.append(token_id)
            self.origins.append(origin)  # type: ignore[arg-type]
            num_taken += 1
            num_accepted += origin == "accepted"
            self.finish_reason = self._finish_reason()
            if self.finish_reason:
                break
        self.stats.count(len(drafted), num_accepted)
        return num_taken

    def completion(self) -> Completion:
        """The finished request."""
        assert self.finish_reason is not None
        return Completion(
            self.prompt_token_ids,
            self.token_ids,
            self.text(),
            self.finish_reason,
            self.stats,
            self.origins,
            self.num_rounds,
        )

    def text(self) -> str:
        """Decoded output without EOS, cut before the first stop string; empty without a tokenizer."""
        text = self._decode(self.token_ids)
        cuts = [at for s in self._stops if (at := text.find(s)) >= 0]
        return text[: min(cuts)] if cuts else text

    def _finish_reason(self) -> FinishReason | None:
        if self.token_ids[-1] in self._eos_token_ids or self._stop_string_ends_here():
            return "stop"
        if len(self.token_ids) >= self.params.max_tokens or len(self) >= self._window:
            return "length"
        return None

    def _stop_string_ends_here(self) -> bool:
        for stop in self._stops:
            # A character may take four byte tokens; a few more cover merges across the edge.
            tail = self._decode(self.token_ids[-(4 * len(stop) + 8) :])
            if stop in tail and stop in self._decode(self.token_ids):
                return True
        return False

    def _decode(self, token_ids: list[int]) -> str:
        if self._tokenizer is None:
            return ""
        kept = [t for t in token_ids if t not in self._eos_token_ids]
        return self._tokenizer.decode(kept, skip_special_tokens=True)
