"""Chained acceptance, estimated from texts: how often depths 1..k would all be accepted in a greedy chain.

It is the product over j = 1..k of the share of chains that, having come as far as depth j, are accepted there. Counted
where the text itself follows the trunk's argmax up to there, since only there the text shows what the chain would have
read; those are the easier places of a text that the trunk did not write, so there the estimate is high.
"""

from __future__ import annotations

import torch


class Chain:
    """Goes from depth 1 to the deepest. ``argmax_BT[i]`` is the trunk's choice for token i+1."""

    def __init__(self, token_ids_BT: torch.Tensor, argmax_BT: torch.Tensor) -> None:
        # accepted_BT: so far every depth was the trunk's argmax; on_path_BT: and the text took that argmax.
        self._accepted_BT = torch.ones_like(token_ids_BT, dtype=torch.bool)
        self._on_path_BT = torch.ones_like(self._accepted_BT)
        self._follows_BT = torch.zeros_like(self._accepted_BT)  # token i+1 is the trunk's argmax at i
        self._follows_BT[:, :-1] = token_ids_BT[:, 1:] == argmax_BT[:, :-1]
        self._depth = 0

    def extend(self, valid_BT: torch.Tensor, agreed_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The next depth: which of its valid positions agreed -> chains that come as far, those of them accepted."""
        self._depth += 1
        agreed_BT = torch.zeros_like(self._accepted_BT)
        agreed_BT[valid_BT] = agreed_N
        before_BT, self._accepted_BT = self._accepted_BT, self._accepted_BT & agreed_BT
        on_path_BT = self._on_path_BT & valid_BT  # at every depth: a chain begins where its first token is a target
        # Depth k+1 at i reads token i+k+1: the text must have taken the trunk's choice at i+k.
        shifted_BT = torch.zeros_like(self._follows_BT)
        shifted_BT[:, : -self._depth] = self._follows_BT[:, self._depth :]
        self._on_path_BT = on_path_BT & shifted_BT
        return (before_BT & on_path_BT).sum(), (self._accepted_BT & on_path_BT).sum()
