"""Which token is drafted from a depth's logits: one rule for every drafter."""

from __future__ import annotations

import torch

from foretell.decoding.sampling import draw, filtered_probs
from foretell.decoding.sequence import Sequence
from foretell.models.greedy import argmax
from foretell.models.heads import Heads
from foretell.types import Draft


def choose_tokens(
    logits_BV: torch.Tensor, rows: list[Sequence], drafts: list[Draft], heads: Heads | None = None
) -> None:
    """Append one token to every row's draft: the argmax, or one drawn as the row samples, with its distribution.

    ``heads``: whose draft vocabulary the logits are over; without, they are over the trunk's.
    """
    best_ids = argmax(logits_BV)
    greedy_ids = (best_ids if heads is None else heads.to_token_ids(best_ids)).tolist()
    for b, (row, draft) in enumerate(zip(rows, drafts, strict=True)):
        if row.params.greedy:
            draft.token_ids.append(greedy_ids[b])
            continue
        probs_V = filtered_probs(logits_BV[b : b + 1], row.params)[0]
        if heads is not None and heads.draft_ids_V is not None:
            full_V = probs_V.new_zeros(heads.trunk.vocab_size)
            probs_V = full_V.index_copy_(0, heads.draft_ids_V, probs_V)
        draft.token_ids.append(draw(probs_V, row.generator))
        previous = [] if draft.probs_KV is None else [draft.probs_KV]
        draft.probs_KV = torch.cat([*previous, probs_V.unsqueeze(0)])
