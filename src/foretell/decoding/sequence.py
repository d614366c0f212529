"""Sequence: one request while it decodes; its stop rules are checked token by token."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch

from foretell.config import SamplingParams
from foretell.decoding.blocks import FULL, BlockTable
from foretell.decoding.logprobs import TokenLogprob
from foretell.decoding.rules import LogitRules
from foretell.types import AcceptanceStats, Completion, Draft, FinishReason, Origin, Verdict


class Sequence:
    """Prompt and output of one row. ``num_cached`` of its tokens are in the caches; once it decodes, all but the last,
    the root.

    ``depth``: drafted tokens a step, or "auto"; ``num_nodes``: nodes of a drafted tree, where those are more.
    ``on_step`` is called after every step that brought tokens or an end.
    """

    def __init__(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        depth: int | Literal["auto"],
        window: int,
        eos_token_ids: frozenset[int],
        tokenizer: Any,
        vocab_size: int,
        num_nodes: int = 0,
    ) -> None:
        self.prompt_token_ids = prompt_token_ids
        self.params = params
        self.depth = depth
        self.num_nodes = num_nodes
        self.window = window
        self.token_ids: list[int] = []
        self.origins: list[Origin] = []
        self.stats = AcceptanceStats()
        self.num_rounds = 0
        self.finish_reason: FinishReason | None = None
        self.error: BaseException | None = None
        self.label = ""  # its request class
        self.node_errors: dict[int, BaseException] = {}  # of this step's root (-1) and drafted nodes
        self.forced: list[int] = []  # tokens that its grammar leaves no choice about, to be drafted now
        self.on_step: Callable[[Sequence], None] | None = None
        self.generator = torch.Generator().manual_seed(secrets.randbits(63) if params.seed is None else params.seed)
        self.leader: Sequence | None = None  # a row with the same prompt, which is worth waiting for
        self.slot = -1
        self.asked_s = time.perf_counter()
        self.queue_s: float | None = None  # until it first joined the batch
        self.tables: dict[str, BlockTable] = {}
        self.num_cached = 0
        self.known_uids: list[int] = []  # of the texts of its first blocks
        self.num_drafted_blocks = 0
        self.logprobs: list[TokenLogprob] = []
        self.prompt_logprobs: list[TokenLogprob] = []  # of the prompt's tokens after the first
        self._eos_token_ids = frozenset() if params.ignore_eos else eos_token_ids
        self.rules = LogitRules(params, prompt_token_ids, vocab_size, tokenizer, eos_token_ids)
        self._tokenizer = tokenizer
        self._stops = tuple(params.stop or ())

    def __len__(self) -> int:
        return len(self.prompt_token_ids) + len(self.token_ids)

    def tokens_from(self, index: int, stop: int | None = None) -> list[int]:
        """Tokens of prompt and output from ``index`` on, up to ``stop``."""
        num_prompt = len(self.prompt_token_ids)
        if index >= num_prompt:
            return self.token_ids[index - num_prompt : None if stop is None else stop - num_prompt]
        if stop is not None and stop <= num_prompt:
            return self.prompt_token_ids[index:stop]
        return self.prompt_token_ids[index:] + self.token_ids[: None if stop is None else stop - num_prompt]

    @property
    def num_pending(self) -> int:
        """Tokens that the trunk has not read: the root alone once the row decodes."""
        return len(self) - self.num_cached

    def whole_tables(self, kinds: Iterable[str]) -> dict[str, BlockTable]:
        """Tables of all its entries, for these kinds of layers and full attention.

        A drafter reads behind the trunk, whose sliding layers may have given back by then what the drafter's look at.
        """
        return dict.fromkeys([FULL, *kinds], self.tables[FULL])

    @property
    def max_length(self) -> int:
        """Tokens it can come to, prompt and output together."""
        return min(self.window, len(self.prompt_token_ids) + self.params.max_tokens)

    @property
    def depth_limit(self) -> int:
        """Deepest draft that can be used now: not past max_tokens or the window, and none before the first token."""
        if not self.token_ids or self.num_pending > 1:
            return 0
        left = min(self.params.max_tokens - len(self.token_ids), self.window - len(self))
        return max(0, left - 1)

    def commit(self, draft: Draft, verdict: Verdict) -> int:
        """Take the accepted tokens and the trunk's own; returns how many tokens were taken before the text ended.

        It ends with an error where logits are needed that could not be had.
        """
        self.num_rounds += 1
        last: Origin = "bonus" if verdict.all_accepted and len(draft) else "recovered"
        taken = [(draft.token_ids[node], "accepted") for node in verdict.path]
        num_taken = num_accepted = 0
        deciding = [-1, *verdict.path]  # the node whose logits brought each token
        for node, (token_id, origin) in zip(deciding, [*taken, (verdict.next_token, last)], strict=True):
            if node in self.node_errors:
                self.fail(self.node_errors[node])
                break
            self.token_ids.append(token_id)
            self.origins.append(origin)  # type: ignore[arg-type]
            num_taken += 1
            num_accepted += origin == "accepted"
            self.finish_reason = self._finish_reason()
            if self.finish_reason:
                break
        try:
            self.rules.commit(self.token_ids[len(self.token_ids) - num_taken :])
        except Exception as error:
            self.fail(error)
        self.stats.count(max(draft.depths, default=0), num_accepted, len(draft))
        return num_taken

    def fail(self, error: BaseException) -> None:
        """End this row, and no other, with an error: what it was asked for cannot be done."""
        self.error = error
        self.finish_reason = "abort"

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
            None if self.params.logprobs is None else self.logprobs[: len(self.token_ids)],
            None if self.params.prompt_logprobs is None else [None, *self.prompt_logprobs],
            self.queue_s,
        )

    def text(self) -> str:
        """Decoded output without EOS, cut before the first stop string; empty without a tokenizer."""
        text = self.decode(self.token_ids)
        cuts = [at for s in self._stops if (at := text.find(s)) >= 0]
        return text[: min(cuts)] if cuts else text

    def _finish_reason(self) -> FinishReason | None:
        if self.token_ids[-1] in self._eos_token_ids or self._stop_string_ends_here():
            return "stop"
        if len(self.token_ids) >= self.params.max_tokens or len(self) >= self.window:
            return "length"
        return None

    def _stop_string_ends_here(self) -> bool:
        if not self._stops:
            return False
        # A character may take four byte tokens; a few more cover merges across the edge.
        end = self.decode(self.token_ids[-16:])
        for stop in self._stops:
            if stop[-2:] not in end:  # long ones are dear to look for
                continue
            tail = self.decode(self.token_ids[-(4 * len(stop) + 8) :])
            if stop in tail and stop in self.decode(self.token_ids):
                return True
        return False

    def decode(self, token_ids: list[int]) -> str:
        """Text of ``token_ids`` without EOS and special tokens; empty without a tokenizer."""
        if self._tokenizer is None:
            return ""
        kept = [t for t in token_ids if t not in self._eos_token_ids]
        return self._tokenizer.decode(kept, skip_special_tokens=True)
