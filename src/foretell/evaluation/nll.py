"""Log-probabilities of given tokens: rows of any length in batches, the vocabulary a few positions at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from foretell.models.greedy import argmax
from foretell.models.trunk import Trunk

_CHUNK = 256
"""Positions projected to the vocabulary at a time."""
_MAX_BATCH_TOKENS = 8192
"""Positions of a batch, padding included, however many rows were asked for: attention masks grow with them."""


def batches(lengths: Sequence[int], max_rows: int) -> Iterator[list[int]]:
    """Indices of rows that are run together, the longest first, so that little is padded."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        num_rows = max(1, min(max_rows, _MAX_BATCH_TOKENS // max(1, lengths[order[start]])))
        yield order[start : start + num_rows]
        start += num_rows


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and document ids (B, T); a row is document 0, the padding behind it -1."""
    longest = max(map(len, rows))
    token_ids_BT = torch.zeros(len(rows), longest, dtype=torch.long)
    doc_ids_BT = torch.full_like(token_ids_BT, -1)
    for b, row in enumerate(rows):
        token_ids_BT[b, : len(row)] = torch.tensor(row)
        doc_ids_BT[b, : len(row)] = 0
    return token_ids_BT.to(device), doc_ids_BT.to(device)


def label_logprobs(
    project: Callable[[torch.Tensor], torch.Tensor], states_ND: torch.Tensor, labels_N: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Natural log-probability (N,) of each label, in float32 or wider, and the likeliest token (N,).

    A label of -100 is none: its log-probability is 0.
    """
    logprobs, likeliest = [], []
    for states, labels in zip(states_ND.split(_CHUNK), labels_N.split(_CHUNK), strict=True):
        logits_NV = project(states)
        logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
        labels = labels.to(logits_NV.device)
        found = logits_NV.log_softmax(-1).gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        logprobs.append(torch.where(labels >= 0, found, torch.zeros_like(found)))
        likeliest.append(argmax(logits_NV))
    if not logprobs:
        return torch.zeros(0), torch.zeros(0, dtype=torch.long)
    return torch.cat(logprobs), torch.cat(likeliest)


@torch.inference_mode()
def continuation_logprobs(
    trunk: Trunk,
    pairs: Sequence[tuple[list[int], list[int]]],
    max_rows: int = 8,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[tuple[float, bool]]:
    """For every (context, continuation), neither empty: the continuation's log-probability in nats, summed over its
    tokens, and whether each of them is the trunk's likeliest.
    """
    results: list[tuple[float, bool]] = [(0.0, True)] * len(pairs)
    num_done = 0
    for indices in batches([len(context) + len(end) for context, end in pairs], max_rows):
        # The last token is predicted, and predicts nothing.
        token_ids, doc_ids = padded([[*pairs[i][0], *pairs[i][1]][:-1] for i in indices], trunk.device)
        post_BTD = trunk.text_states(token_ids, doc_ids).post_BTD
        for b, i in enumerate(indices):
            context, end = pairs[i]
            labels = torch.tensor(end)
            states = post_BTD[b, len(context) - 1 : len(context) - 1 + len(end)]
            logprobs, likeliest = label_logprobs(trunk.project, states, labels)
            results[i] = (float(logprobs.sum()), bool((likeliest.cpu() == labels).all()))
        num_done += len(indices)
        if on_progress:
            on_progress(num_done, len(pairs))
    return results


def mean_nll(trunk: Trunk, rows: Sequence[Sequence[int]], max_rows: int = 32, max_tokens: int = 256) -> float | None:
    """Mean negative log-probability, nats a token, of the first rows' first tokens (each but its very first, which
    nothing predicts); None where there is none. How likely the trunk finds these prompts.
    """
    taken = [list(row[:max_tokens]) for row in rows[:max_rows] if len(row) > 1]
    if not taken:
        return None
    found = continuation_logprobs(trunk, [(row[:1], row[1:]) for row in taken])
    return -sum(logprob for logprob, _ in found) / sum(len(row) - 1 for row in taken)
