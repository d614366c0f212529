"""Targets of every depth from absolute indices: never chained rolls, so masks, padding and documents cannot leak.

Depth k at position i predicts token i+k+1, after the trunk's state at i and the tokens up to i+k. Depth 0 is the trunk.
"""

from __future__ import annotations

import torch


def valid_mask(doc_ids_BT: torch.Tensor, supervised_BT: torch.Tensor, depth: int) -> torch.Tensor:
    """(B, T): True at i where tokens i .. i+depth+1 are one real document and the label i+depth+1 is supervised.

    Documents are contiguous, so equal ids at both ends suffice; padding carries document -1.
    """
    ahead = depth + 1
    valid = torch.zeros_like(supervised_BT)
    if ahead < doc_ids_BT.shape[1]:
        same = (doc_ids_BT[:, :-ahead] == doc_ids_BT[:, ahead:]) & (doc_ids_BT[:, :-ahead] >= 0)
        valid[:, :-ahead] = same & supervised_BT[:, ahead:]
    return valid


def count_valid(doc_ids_BT: torch.Tensor, supervised_BT: torch.Tensor, num_depths: int) -> torch.Tensor:
    """(K+1,) valid positions of every depth, the trunk's own (depth 0) first: the denominators of the loss."""
    return torch.stack([valid_mask(doc_ids_BT, supervised_BT, k).sum() for k in range(num_depths + 1)])


def ahead_of(values_BT: torch.Tensor, valid_BT: torch.Tensor, by: int) -> torch.Tensor:
    """Values at i+by for every valid i: (num_valid, ...)."""
    rows, positions = valid_BT.nonzero(as_tuple=True)
    return values_BT[rows, positions + by]
