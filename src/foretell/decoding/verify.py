"""Accept or reject a drafted chain so that the output keeps the trunk's distribution exactly.

Greedy: a drafted token is accepted iff it is the trunk's argmax. Sampling (Leviathan et al., arXiv 2211.17192): accept
with min(1, p/q), else draw from norm(max(p - q, 0)); after a fully accepted draft, one bonus token from the trunk.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from foretell.decoding.sampling import draw
from foretell.types import Draft, Verdict


def verify_greedy(draft: Draft, argmax_ids: Sequence[int]) -> Verdict:
    """``argmax_ids[k]``: the trunk's choice after the first k drafted tokens (len(draft) + 1 of them)."""
    num_accepted = 0
    while num_accepted < len(draft.token_ids) and draft.token_ids[num_accepted] == argmax_ids[num_accepted]:
        num_accepted += 1
    return Verdict(num_accepted, argmax_ids[num_accepted], num_accepted == len(draft.token_ids))


def verify_sampled(draft: Draft, probs_KV: torch.Tensor, generator: torch.Generator) -> Verdict:
    """``probs_KV``: what is sampled after 0, 1, ... len(draft) drafted tokens; q: what the draft was drawn from."""
    for k, token_id in enumerate(draft.token_ids):
        assert draft.probs_KV is not None
        p, q = probs_KV[k], draft.probs_KV[k].to(probs_KV.dtype)
        # u < p/q written without a division; u in [0, 1) and strict, so a token with p = 0 is never accepted.
        u = torch.rand((), dtype=torch.float64, generator=generator, device=generator.device)
        if u.item() * q[token_id].item() < p[token_id].item():
            continue
        residual = (p - q).clamp(min=0)
        # p == q up to rounding leaves no residual mass; then p itself is the law of the replacement.
        return Verdict(k, draw(residual if residual.sum() > 0 else p, generator), False)
    return Verdict(len(draft.token_ids), draw(probs_KV[len(draft.token_ids)], generator), True)
