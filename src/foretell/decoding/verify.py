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
    """``probs_KV``: what is sampled after 0, 1, ... len(draft) drafted tokens; q: what the draft was drawn from.

    A draft without ``probs_KV`` was certain: q is 1 at each of its tokens.
    """
    for k, token_id in enumerate(draft.token_ids):
        p, q = probs_KV[k], None if draft.probs_KV is None else draft.probs_KV[k].to(probs_KV)
        # u < p/q written without a division; u in [0, 1) and strict, so a token with p = 0 is never accepted.
        u = torch.rand((), dtype=torch.float64, generator=generator, device=generator.device)
        if u.item() * (1.0 if q is None else q[token_id].item()) < p[token_id].item():
            continue
        if q is None:
            residual = p.clone()
            residual[token_id] = 0
        else:
            residual = (p - q).clamp(min=0)
        # p == q up to rounding leaves no residual mass; then p itself is the law of the replacement.
        return Verdict(k, draw(residual if residual.sum() > 0 else p, generator), False)
    return Verdict(len(draft.token_ids), draw(probs_KV[len(draft.token_ids)], generator), True)
