"""PassInput: rows of different length laid side by side for one pass through a decoder with a cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from foretell.decoding.cache import KVCache


@dataclass
class PassInput:
    """Positions and masks of one pass. Row b brings ``counts[b]`` new tokens, at entries from ``starts[b]`` on."""

    counts: list[int]
    positions_BN: torch.Tensor
    allowed_BNS: torch.Tensor
    key_positions_BS: torch.Tensor

    @classmethod
    def build(
        cls,
        cache: KVCache,
        slots: list[int],
        starts: list[int],
        counts: list[int],
        device: torch.device,
        width: int = 1,
    ) -> PassInput:
        """Announce the pass to ``cache`` and lay out its inputs, at least ``width`` nodes a row.

        Padded nodes repeat the row's last position.
        """
        num_nodes = max(*counts, width)
        entries = [list(range(start, start + count)) for start, count in zip(starts, counts, strict=True)]
        num_keys = cache.begin(slots, entries, num_nodes, device)
        offsets_N = torch.arange(num_nodes, device=device)
        starts_B1 = torch.tensor(starts, device=device).unsqueeze(1)
        last_B1 = torch.tensor(counts, device=device).unsqueeze(1) - 1
        positions_BN = starts_B1 + torch.minimum(offsets_N, last_B1)
        key_positions_BS = torch.arange(num_keys, device=device).expand(len(slots), num_keys)
        allowed_BNS = key_positions_BS.unsqueeze(1) <= positions_BN.unsqueeze(2)
        return cls(counts, positions_BN, allowed_BNS, key_positions_BS)

    def pad(self, states: list[torch.Tensor]) -> torch.Tensor:
        """[(n_b, D)] -> (B, N, D), padded with zeros."""
        if len(states) == 1:
            return states[0].unsqueeze(0)
        return torch.nn.utils.rnn.pad_sequence(states, batch_first=True)

    def pad_ids(self, token_ids: list[list[int]]) -> torch.Tensor:
        """[[id] * n_b] -> (B, N), padded by repeating the row's last id."""
        num_nodes = self.positions_BN.shape[1]
        padded = [[*row, *[row[-1]] * (num_nodes - len(row))] for row in token_ids]
        return torch.tensor(padded, device=self.positions_BN.device)
