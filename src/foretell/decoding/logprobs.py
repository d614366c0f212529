"""Log-probabilities of chosen tokens and of their likeliest alternatives."""

from __future__ import annotations

import torch

from foretell.types import TokenLogprob as TokenLogprob


def logprobs_of(logits_NV: torch.Tensor, token_ids: list[int], num_top: int) -> list[TokenLogprob]:
    """``token_ids[i]`` under row i of the trunk's RAW logits: log-softmax in float32.

    Raw means before penalties, bias, bans, grammar, temperature and filters: what the model says, whatever was sampled
    and whoever drafted it. So a token that the rules forced may have a low value, and one that was accepted from a
    draft has the same value as without drafts. ``num_top`` 0: the token alone.
    """
    if not token_ids:
        return []
    logits_NV = logits_NV.float()
    total_N1 = logits_NV.logsumexp(-1, keepdim=True)
    ids_N1 = torch.tensor(token_ids, device=logits_NV.device).unsqueeze(-1)
    chosen = (logits_NV.gather(-1, ids_N1) - total_N1).squeeze(-1).tolist()
    tops: list[list[tuple[int, float]]] = [[] for _ in token_ids]
    if num_top:
        values, indices = logits_NV.topk(min(num_top, logits_NV.shape[-1]), dim=-1)
        pairs = zip(indices.tolist(), (values - total_N1).tolist(), strict=True)
        tops = [list(zip(ids, logprobs, strict=True)) for ids, logprobs in pairs]
    return [TokenLogprob(*entry) for entry in zip(token_ids, chosen, tops, strict=True)]
