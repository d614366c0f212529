"""Typical acceptance: Medusa's LOSSY rule for drafts (arXiv 2401.10774, section 2.3.1).

A drafted token is taken where it is likely enough, not with the probability that would keep the trunk's distribution.
More is accepted, and the text no longer follows the trunk. Only where asked for by name: ``typical_acceptance``.
"""

from __future__ import annotations

import torch

from foretell.decoding.sampling import draw
from foretell.types import Draft, Verdict


def verify_typical(draft: Draft, probs_NV: torch.Tensor, epsilon: float, generator: torch.Generator) -> Verdict:
    """LOSSY. A path of drafted tokens that are likely enough, and the next token, drawn from the trunk.

    ``probs_NV``: row 0 is what the trunk samples from after the root, row n + 1 after node n. A node is accepted where
    its parent is and p(token) > min(epsilon, delta * exp(-H(p))), with H the entropy of p in nats and delta =
    sqrt(epsilon), the authors' choice. The longest accepted path is taken; of equal ones the likeliest.
    """
    if not draft.token_ids:
        return Verdict([], draw(probs_NV[0], generator), True)
    probs_NV = probs_NV.double()
    entropy_N = torch.special.entr(probs_NV).sum(-1)
    threshold_N = (epsilon**0.5 * (-entropy_N).exp()).clamp(max=epsilon)
    rows = torch.tensor(draft.parents, device=probs_NV.device) + 1
    tokens = torch.tensor(draft.token_ids, device=probs_NV.device)
    p = probs_NV[rows, tokens]
    likely, logp = (p > threshold_N[rows]).tolist(), p.log().tolist()
    best: tuple[int, float, int] = (0, 0.0, -1)  # depth, log-probability of the path, node
    paths: dict[int, tuple[int, float]] = {-1: (0, 0.0)}
    for node, parent in enumerate(draft.parents):
        if likely[node] and parent in paths:
            depth, total = paths[parent]
            paths[node] = depth + 1, total + logp[node]
            if paths[node] > best[:2]:
                best = (*paths[node], node)
    node = best[2]
    return Verdict(draft.path(node), draw(probs_NV[node + 1], generator), not draft.children(node))
