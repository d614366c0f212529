"""PassInput: rows of different length packed for one pass through a decoder with a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from foretell.decoding.blocks import BlockTable
from foretell.decoding.cache import KeySpan, KVCache
from foretell.models.attention import RowLayout
from foretell.models.decoder import States


@dataclass
class PassRow:
    """What one row brings to a pass: ``positions[n]`` of each node, which is written to ``entries[n]``.

    A node sees all entries up to its own; where ``seen[n]`` is given, those below ``start`` and its branch: entries
    ``seen[n]``, root side first and its own last.
    """

    tables: dict[str, BlockTable]
    start: int
    positions: Sequence[int]
    entries: Sequence[int]
    seen: Sequence[list[int] | None] | None = None

    @classmethod
    def stretch(cls, tables: dict[str, BlockTable], start: int, count: int) -> PassRow:
        """``count`` tokens in a row, from ``start`` on."""
        return cls(tables, start, range(start, start + count), range(start, start + count))


@dataclass
class PassInput:
    """Positions and masks of one pass. Rows lie one after the other in one packed row of P tokens.

    A pass of a decoder with recurrent layers is not packed but padded, (B, N): those layers tell rows apart only so.
    ``masks`` are for every kind of layer of the cache, (B, N, S).
    """

    counts: list[int]
    padded: list[int]
    packed: bool
    positions_BT: torch.Tensor
    masks: dict[str, torch.Tensor]

    @classmethod
    def build(
        cls, cache: KVCache, rows: Sequence[PassRow], device: torch.device, width: int = 1, packed: bool = True
    ) -> PassInput:
        """Announce the pass to ``cache`` and lay out its inputs, ``width`` tokens or more altogether (packed) or a row.

        Padding repeats the row's last node and is written where nothing is read.
        """
        counts = [len(row.entries) for row in rows]
        if packed:
            padded = [*counts[:-1], max(counts[-1], width - sum(counts[:-1]))]
        else:
            padded = [max(*counts, width)] * len(rows)
        entries = [_padded_entries(row, count) for row, count in zip(rows, padded, strict=True)]
        num_nodes = max(padded)
        positions = [[*row.positions, *[row.positions[-1]] * (num_nodes - len(row.positions))] for row in rows]
        positions_BN = torch.tensor(positions, device=device)
        spans, masks = {}, {}
        for kind in dict.fromkeys(cache.kinds):
            span = KeySpan.build([row.tables[kind] for row in rows], entries, cache.scratch(kind), device)
            window = cache.window if kind == "sliding_attention" else None
            spans[kind], masks[kind] = span, _mask(rows, positions_BN, span, window)
        is_single = packed and len(rows) == 1
        cache.begin(spans, RowLayout.build(padded, device) if packed and not is_single else None)
        if packed:
            flat = [p for row, count in zip(positions, padded, strict=True) for p in row[:count]]
            return cls(counts, padded, packed, torch.tensor([flat], device=device), masks)
        return cls(counts, padded, packed, positions_BN, masks)

    def token_ids(self, token_ids: Sequence[Sequence[int]]) -> torch.Tensor:
        """Every row's tokens, (1, P) or (B, N); padding repeats the last one."""
        rows = [[*ids, *[ids[-1]] * (n - len(ids))] for ids, n in zip(token_ids, self.padded, strict=True)]
        if self.packed:
            rows = [[token_id for row in rows for token_id in row]]
        return torch.tensor(rows, device=self.positions_BT.device)

    def states(self, states: Sequence[torch.Tensor]) -> torch.Tensor:
        """Every row's states (n, D), as (1, P, D) or (B, N, D)."""
        rows = [
            torch.cat([row, row[-1:].expand(n - len(row), -1)]) if n > len(row) else row
            for row, n in zip(states, self.padded, strict=True)
        ]
        if len(rows) == 1:
            return rows[0].unsqueeze(0)
        return torch.cat(rows).unsqueeze(0) if self.packed else torch.stack(rows)

    def pick(self, states_BTD: torch.Tensor, nodes: Sequence[tuple[int, int]]) -> torch.Tensor:
        """States (M, D) of nodes, each (row, node)."""
        if self.packed:
            starts = [0, *accumulate(self.padded)]
            return states_BTD[0][torch.tensor([starts[b] + n for b, n in nodes], device=states_BTD.device)]
        row_index, node_index = torch.tensor(nodes, device=states_BTD.device).unbind(1)
        return states_BTD[row_index, node_index]

    def split(self, states_BTD: torch.Tensor) -> list[torch.Tensor]:
        """Every row's states (n, D), padding left out."""
        rows = states_BTD[0].split(self.padded) if self.packed else states_BTD.unbind(0)
        return [row[:count] for row, count in zip(rows, self.counts, strict=True)]

    def split_states(self, states: States) -> list[States]:
        """``split`` for both sides of the norm, and what enters the last layer."""
        pre, post = self.split(states.pre_BTD), self.split(states.post_BTD)
        below = [None] * len(pre) if states.below_BTD is None else self.split(states.below_BTD)
        return [States(*row) for row in zip(pre, post, below, strict=True)]


def _padded_entries(row: PassRow, count: int) -> list[int]:
    """Padding lies behind the row's own entries where there is room: nothing there is final. Else nowhere (-1)."""
    entries = list(row.entries)
    room = min(table.num_entries for table in row.tables.values())
    behind = max(entries) + 1
    return entries + [behind + i if behind + i < room else -1 for i in range(count - len(entries))]


def _mask(rows: Sequence[PassRow], positions_BN: torch.Tensor, span: KeySpan, window: int | None) -> torch.Tensor:
    device = positions_BN.device
    entries_BS = torch.arange(span.num_keys, device=device) + torch.tensor(span.first_B, device=device).unsqueeze(1)
    # Final entries, and those of a stretch, lie at their positions.
    allowed_BNS = entries_BS.unsqueeze(1) <= positions_BN.unsqueeze(2)
    if window:
        allowed_BNS &= positions_BN.unsqueeze(2) - entries_BS.unsqueeze(1) < window
    own, starts = [], []
    for b, row in enumerate(rows):
        branches = row.seen or [None]
        branches = [*branches, *[branches[-1]] * (positions_BN.shape[1] - len(branches))]
        starts.append([2**62 if branch is None else row.start for branch in branches])
        own += [
            (b, n, entry - span.first_B[b])
            for n, branch in enumerate(branches)
            for entry in (branch or ())[-window if window else 0 :]
        ]
    if own:
        allowed_BNS &= entries_BS.unsqueeze(1) < torch.tensor(starts, device=device).unsqueeze(2)
        allowed_BNS[tuple(torch.tensor(own, device=device).unbind(1))] = True
    return allowed_BNS
