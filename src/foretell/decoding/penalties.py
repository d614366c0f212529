"""Repetition, presence and frequency penalties, with counts that grow by the new tokens alone."""

from __future__ import annotations

import torch

from foretell.sampling_params import SamplingParams


class Penalties:
    """Counts of one row's tokens, and what they take off its logits.

    Repetition (CTRL, arXiv 1909.05858, section 4.1; as in transformers): the logit of a token seen in prompt or output
    is divided by the penalty where positive, else multiplied. Presence and frequency (OpenAI): minus ``presence`` for
    a token of the output, and minus ``frequency`` for each time it is there.
    """

    def __init__(self, params: SamplingParams, prompt_token_ids: list[int], vocab_size: int) -> None:
        self._repetition = params.repetition_penalty
        self._presence = params.presence_penalty
        self._frequency = params.frequency_penalty
        # Only the tokens that were seen, a few hundred of a large vocabulary: C columns of the logits.
        self._columns: dict[int, int] = {}
        self._ids_C = torch.zeros(0, dtype=torch.long)
        self._counts_C = torch.zeros(0)  # in the output; 0 for tokens of the prompt alone
        if self._repetition != 1:
            # A prompt may hold ids beyond the output's rows (image tokens): they have no logit.
            self._add([token_id for token_id in prompt_token_ids if token_id < vocab_size])

    def __bool__(self) -> bool:
        return self._repetition != 1 or self._presence != 0 or self._frequency != 0

    def commit(self, token_ids: list[int]) -> None:
        """Count new tokens of the output."""
        self._add(token_ids)
        for token_id in token_ids:
            self._counts_C[self._columns[token_id]] += 1

    def apply(self, logits_NV: torch.Tensor, prefixes: list[list[int]]) -> torch.Tensor:
        """A copy of the logits, penalised; row i also counts the tokens of ``prefixes[i]``."""
        num_known = len(self._columns)
        new = {token_id: 0 for prefix in prefixes for token_id in prefix if token_id not in self._columns}
        new = {token_id: num_known + i for i, token_id in enumerate(new)}
        ids_C = torch.cat([self._ids_C, torch.tensor(list(new), dtype=torch.long)])
        counts_NC = torch.cat([self._counts_C, torch.zeros(len(new))]).repeat(len(prefixes), 1)
        for row, prefix in enumerate(prefixes):
            for token_id in prefix:
                counts_NC[row, new[token_id] if token_id in new else self._columns[token_id]] += 1
        ids_C, counts_NC = ids_C.to(logits_NV.device), counts_NC.to(logits_NV.device)
        values_NC = logits_NV[:, ids_C]
        if self._repetition != 1:
            smaller = torch.where(values_NC < 0, values_NC * self._repetition, values_NC / self._repetition)
            seen_NC = counts_NC > 0
            seen_NC[:, :num_known] = True
            values_NC = torch.where(seen_NC, smaller, values_NC)
        values_NC = values_NC - self._presence * (counts_NC > 0) - self._frequency * counts_NC
        return logits_NV.index_copy(1, ids_C, values_NC)

    def _add(self, token_ids: list[int]) -> None:
        new = [token_id for token_id in dict.fromkeys(token_ids) if token_id not in self._columns]
        if new:
            self._columns |= {token_id: len(self._columns) + i for i, token_id in enumerate(new)}
            self._ids_C = torch.cat([self._ids_C, torch.tensor(new)])
            self._counts_C = torch.cat([self._counts_C, torch.zeros(len(new))])
