"""LogitRules: what a request changes in the logits before they are filtered, the same for plain, draft and verify.

Order, that of transformers' `generate` where it has the rule: logit_bias, repetition penalty, presence and frequency
penalty, bad words, min_tokens, the request's own processors, and the grammar last, so that nothing lifts it. Then
`sampling.filtered_probs`: temperature and the rest. As in transformers (and vLLM) the bias comes before the repetition
penalty, which therefore scales the sum; OpenAI's penalties are sums too, and so commute with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from foretell.decoding.bans import BadWords
from foretell.decoding.grammar import GrammarState
from foretell.decoding.penalties import Penalties
from foretell.errors import SamplingError
from foretell.sampling_params import SamplingParams


class LogitRules:
    """One row's rules and the state that they keep of its tokens; `active` is False where there is nothing to do.

    A row of logits depends on the tokens before it alone, never on who asks or when: the state counts committed tokens
    only, and a drafted path is looked at and forgotten.

    ``eos_token_ids``: what ends a text of this model. Raises SamplingError, naming the field, for a token id that the
    model does not have and a grammar that cannot be used.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_token_ids: list[int],
        vocab_size: int,
        tokenizer: Any = None,
        eos_token_ids: Iterable[int] = (),
    ) -> None:
        self._vocab_size = vocab_size
        self._eos_token_ids = sorted(eos_token_ids)
        self._min_tokens = params.min_tokens if self._eos_token_ids else 0
        self._bias_V = _bias(params.logit_bias or {}, vocab_size)
        self._penalties = Penalties(params, prompt_token_ids, vocab_size)
        self._bad_words = BadWords(params.bad_words, tokenizer, vocab_size, self._eos_token_ids)
        self._processors: list[Callable[..., Any]] = list(params.logits_processors)
        self._strictest = params.grammar_field or ("bad_words" if params.bad_words else "min_tokens")
        self._grammar = (
            GrammarState(params, tokenizer, vocab_size, self._eos_token_ids) if params.grammar_field else None
        )
        self._num_committed = 0
        self._prompt_token_ids = prompt_token_ids
        lasting = self._bias_V is not None or self._penalties or self._bad_words or self._processors or self._grammar
        self._lasting = bool(lasting)

    @property
    def active(self) -> bool:
        """True where `apply` may change something now or later; a step skips the rest."""
        return self._lasting or self._num_committed < self._min_tokens

    def commit(self, token_ids: list[int]) -> None:
        """Count tokens that have become part of the output. `apply` does it for those it finds uncounted."""
        self._num_committed += len(token_ids)
        if self._penalties:
            self._penalties.commit(token_ids)
        if self._grammar:
            self._grammar.commit(token_ids)

    def forced(self, limit: int) -> list[int]:
        """Up to ``limit`` tokens that the grammar leaves no choice about after what is committed: free drafts."""
        return self._grammar.forced(limit) if self._grammar and limit > 0 else []

    def apply(self, logits_NV: torch.Tensor, output_token_ids: list[int], prefixes: list[list[int]]) -> torch.Tensor:
        """Logits (N, V) under the rules; row i follows prompt, ``output_token_ids`` and the drafted ``prefixes[i]``.

        The result is float32 (float64 stays) and a new tensor; the given one where nothing changes. Raises what the
        request's own processors raise, and SamplingError where no token is left.
        """
        assert len(output_token_ids) >= self._num_committed and len(prefixes) == len(logits_NV)
        self.commit(output_token_ids[self._num_committed :])
        if not self.active:
            return logits_NV
        plain = scores = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
        if self._bias_V is not None:
            scores = scores + self._bias_V.to(scores)
        if self._penalties:
            scores = self._penalties.apply(scores, prefixes)
        unbanned = scores
        scores = self._ban(scores, output_token_ids, prefixes)
        if self._processors:
            scores = self._process(scores, output_token_ids, prefixes)
        if self._grammar:
            scores = self._keep_to_grammar(self._grammar, scores, unbanned, prefixes)
        if scores is not unbanned and bool(scores.isneginf().all(-1).any()):
            raise SamplingError("no token is left that may follow; allow more", self._strictest)
        return logits_NV if scores is plain else scores

    def _ban(self, scores: torch.Tensor, output_token_ids: list[int], prefixes: list[list[int]]) -> torch.Tensor:
        rows: list[int] = []
        ids: list[int] = []
        tail = self._tail(output_token_ids)
        for row, prefix in enumerate(prefixes):
            banned = self._bad_words.after(tail + prefix) if self._bad_words else set()
            if len(output_token_ids) + len(prefix) < self._min_tokens:
                banned = banned.union(self._eos_token_ids)
            rows += [row] * len(banned)
            ids += banned
        if not ids:
            return scores
        where = torch.tensor(rows, device=scores.device), torch.tensor(ids, device=scores.device)
        return scores.index_put(where, scores.new_tensor(float("-inf")))

    def _tail(self, output_token_ids: list[int]) -> list[int]:
        """The newest tokens of prompt and output that a bad word may begin with."""
        reach = self._bad_words.reach
        tail = output_token_ids[max(0, len(output_token_ids) - reach) :]
        num_prompt = min(reach - len(tail), len(self._prompt_token_ids))
        return self._prompt_token_ids[len(self._prompt_token_ids) - num_prompt :] + tail

    def _process(self, scores: torch.Tensor, output_token_ids: list[int], prefixes: list[list[int]]) -> torch.Tensor:
        """Every row through the request's processors, alone, as a batch of one text."""
        known = torch.tensor(self._prompt_token_ids + output_token_ids, dtype=torch.long, device=scores.device)
        rows = []
        for row, prefix in zip(scores, prefixes, strict=True):
            input_ids = torch.cat([known, known.new_tensor(prefix)]).unsqueeze(0)
            row_1V = row.clone().unsqueeze(0)  # a processor may write into what it is given
            for processor in self._processors:
                row_1V = processor(input_ids, row_1V)
                if not isinstance(row_1V, torch.Tensor) or row_1V.shape != (1, self._vocab_size):
                    found = tuple(row_1V.shape) if isinstance(row_1V, torch.Tensor) else type(row_1V).__name__
                    raise SamplingError(
                        f"{type(processor).__name__} returned {found}; return scores of shape (1, {self._vocab_size})",
                        "logits_processors",
                    )
            rows.append(row_1V.to(scores))
        processed = torch.cat(rows)
        if not _is_usable(processed) and _is_usable(scores):
            raise SamplingError(
                "returned NaN, infinity, or -inf for every token; leave at least one finite score", "logits_processors"
            )
        return processed

    def _keep_to_grammar(
        self, grammar: GrammarState, scores: torch.Tensor, unbanned: torch.Tensor, prefixes: list[list[int]]
    ) -> torch.Tensor:
        allowed_NV = grammar.allowed(prefixes).to(scores.device)
        kept = torch.where(allowed_NV, scores, float("-inf"))
        if scores is unbanned:
            return kept
        # Where bans leave nothing of what the grammar allows (the text is complete before min_tokens), they give way.
        stuck_N1 = kept.isneginf().all(-1, keepdim=True)
        return torch.where(stuck_N1 & allowed_NV, unbanned, kept)


def _is_usable(scores_NV: torch.Tensor) -> bool:
    """True where every row has a best score that is a number."""
    return bool(scores_NV.amax(-1).isfinite().all())


def _bias(logit_bias: dict[int, float], vocab_size: int) -> torch.Tensor | None:
    if not logit_bias:
        return None
    if unknown := [token_id for token_id in logit_bias if token_id >= vocab_size]:
        raise SamplingError(f"{unknown[0]} is not a token; give ids below {vocab_size}", "logit_bias")
    bias_V = torch.zeros(vocab_size)
    bias_V[list(logit_bias)] = torch.tensor(list(logit_bias.values()), dtype=torch.float32)
    return bias_V
