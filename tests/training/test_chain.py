"""Chained acceptance, position by position."""

from __future__ import annotations

import torch

from foretell.training.chain import Chain
from foretell.training.targets import valid_mask


def test_chains_are_counted_as_by_hand() -> None:
    """Few tokens, so that texts follow the trunk and drafts agree now and then."""
    generator = torch.Generator().manual_seed(0)
    token_ids_BT, argmax_BT = torch.randint(0, 2, (2, 60, 30), generator=generator)
    drafts_KBT = torch.randint(0, 2, (4, 60, 30), generator=generator)
    supervised_BT = torch.rand(60, 30, generator=generator) < 0.9
    doc_ids_BT = torch.arange(30).expand(60, 30) // 12
    chain = Chain(token_ids_BT, argmax_BT)
    for depth in range(1, 5):
        valid_BT = valid_mask(doc_ids_BT, supervised_BT, depth)
        ahead_BT = argmax_BT.roll(-depth, 1)
        found = [int(n) for n in chain.extend(valid_BT, (drafts_KBT[depth - 1] == ahead_BT)[valid_BT])]

        num_chain = num_chained = 0
        for b, i in valid_BT.nonzero().tolist():
            earlier = range(1, depth)
            shown = all(token_ids_BT[b, i + m + 1] == argmax_BT[b, i + m] for m in earlier)
            shown &= all(bool(supervised_BT[b, i + m + 1]) for m in earlier)
            shown &= all(bool(drafts_KBT[m - 1, b, i] == argmax_BT[b, i + m]) for m in earlier)
            num_chain += shown
            num_chained += shown and bool(drafts_KBT[depth - 1, b, i] == argmax_BT[b, i + depth])
        assert found == [num_chain, num_chained]
        assert 0 < num_chained < num_chain


def test_a_chain_longer_than_the_text() -> None:
    chain = Chain(torch.zeros(1, 2).long(), torch.zeros(1, 2).long())
    for _ in range(4):
        none = torch.zeros(1, 2, dtype=torch.bool)
        assert [int(n) for n in chain.extend(none, torch.zeros(0, dtype=torch.bool))] == [0, 0]
