"""The draft vocabulary: the frequent part of the trunk's, over which heads guess."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from foretell.training.packing import Row


def count_tokens(rows: Iterable[Row], vocab_size: int) -> torch.Tensor:
    """(V,) how often each token is a target in ``rows``."""
    counts_V = torch.zeros(vocab_size, dtype=torch.long)
    for row in rows:
        counts_V += torch.bincount(row["token_ids"][row["supervised"]].long(), minlength=vocab_size)
    return counts_V


def choose_draft_vocab(counts_V: torch.Tensor, size: int) -> tuple[torch.Tensor, float]:
    """The ``size`` most frequent ids, ascending, and the share of all occurrences they cover."""
    size = min(size, int((counts_V > 0).sum()))
    ids = counts_V.topk(size).indices.sort().values
    return ids, float(counts_V[ids].sum() / counts_V.sum())
