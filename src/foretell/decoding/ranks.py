"""Processes that hold a part of every layer each (tensor parallelism) do what the first one decides.

Every process runs the same engine on the same requests. Their logits may still differ in the last bit, so that one
accepts a token that another rejects, and texts part or a collective waits for ever. Seeds, shapes, drafts and verdicts
are therefore those of the first process; the rest of a step follows from them. ``group`` None: one process, nothing to
agree on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from foretell.decoding.shape import Shape
from foretell.types import Draft, Verdict


def from_first(group: Any, rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """The first process's ``rows`` of integers, in every process.

    Every process must give as many rows, of any length, and call at the same point.
    """
    if group is None:
        return [list(row) for row in rows]
    device = torch.device("cpu" if dist.get_backend(group) == "gloo" else "cuda")
    counts = torch.tensor([len(row) for row in rows], dtype=torch.long, device=device)
    dist.broadcast(counts, group=group, group_src=0)
    total = int(counts.sum())
    mine = [value for row in rows for value in row][:total]
    values = torch.tensor([*mine, *[0] * (total - len(mine))], dtype=torch.long, device=device)
    if total:
        dist.broadcast(values, group=group, group_src=0)
    return [part.tolist() for part in values.split(counts.tolist())]


def share_shapes(group: Any, shapes: list[Shape]) -> list[Shape]:
    """How much is drafted: a policy that measures times decides otherwise in every process."""
    if group is None or not shapes:
        return shapes
    return [Shape(*row) for row in from_first(group, [[shape.depth, shape.num_nodes] for shape in shapes])]


def share_drafts(group: Any, drafts: list[Draft]) -> list[Draft]:
    """What is drafted. Where a process drafted otherwise, its distributions belong to nothing and are left out."""
    if group is None:
        return drafts
    token_ids = from_first(group, [draft.token_ids for draft in drafts])
    parents = from_first(group, [draft.parents for draft in drafts])
    return [
        own if (own.token_ids, own.parents) == (ids, above) else Draft(ids, above, [None] * len(ids))
        for own, ids, above in zip(drafts, token_ids, parents, strict=True)
    ]


def share_verdicts(group: Any, verdicts: list[Verdict]) -> list[Verdict]:
    """What is accepted, and the next token. Every process judges, so that its generators draw as often."""
    if group is None:
        return verdicts
    given = [[verdict.next_token, int(verdict.all_accepted), *verdict.path] for verdict in verdicts]
    return [Verdict(path, next_token, bool(all_)) for next_token, all_, *path in from_first(group, given)]
