"""Accept a path of a drafted tree so that the output keeps the trunk's distribution exactly.

Greedy: a drafted token is accepted iff it is the trunk's argmax. Sampling: the children of a node, drawn from q without
replacement, are tried in turn: accept with min(1, p/q), else go on with p <- norm(max(p - q, 0)) and q without that
token (SpecInfer, arXiv 2305.09781; Jeon et al., arXiv 2402.14160). A chain is Leviathan et al., arXiv 2211.17192. After
the last accepted node one token is drawn from what is left of p, a bonus where nothing was left to try.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from foretell.decoding.sampling import draw
from foretell.types import Draft, Verdict


def verify_greedy(draft: Draft, argmax_ids: Sequence[int]) -> Verdict:
    """``argmax_ids[n + 1]``: the trunk's choice after node n; ``argmax_ids[0]``: after the root."""
    path: list[int] = []
    node = -1
    while True:
        children = draft.children(node)
        right = [child for child in children if draft.token_ids[child] == argmax_ids[node + 1]]
        if not right:
            return Verdict(path, argmax_ids[node + 1], not children)
        node = right[0]
        path.append(node)


def verify_sampled(draft: Draft, probs_NV: torch.Tensor, generator: torch.Generator) -> Verdict:
    """``probs_NV``: what is sampled after the root and after every node; q: what the children were drawn from.

    A child without ``probs`` was certain: q is 1 at its token.
    """
    path: list[int] = []
    node = -1
    while True:
        children = draft.children(node)
        accepted, p_V = _try(draft, children, probs_NV[node + 1], generator)
        if accepted is None:
            return Verdict(path, draw(p_V, generator), not children)
        node = accepted
        path.append(node)


def _try(
    draft: Draft, children: list[int], p_V: torch.Tensor, generator: torch.Generator
) -> tuple[int | None, torch.Tensor]:
    """The accepted child, or None and the law of the token that comes in their place (not normalised)."""
    q_V: torch.Tensor | None = None
    mass = 1.0  # of p_V, which is normalised only in thought
    for i, child in enumerate(children):
        token_id, probs = draft.token_ids[child], draft.probs[child]
        if i == 0 and probs is not None:
            q_V = probs.to(p_V)
        q = 1.0 if q_V is None or probs is None else q_V[token_id].item()
        # u < p/q written without a division; u in [0, 1) and strict, so a token with p = 0 is never accepted.
        u = torch.rand((), dtype=torch.float64, generator=generator, device=generator.device).item()
        if u * q * mass < p_V[token_id].item():
            return child, p_V
        residual = p_V.clone() if q_V is None or probs is None else (p_V - mass * q_V).clamp(min=0)
        if q_V is None or probs is None:
            residual[token_id] = 0
        left = float(residual.sum(dtype=torch.float64))
        if not left > 0:  # p == q up to rounding leaves nothing; then p itself is the law of the replacement
            return None, p_V
        p_V, mass = residual, left
        if q_V is not None and i + 1 < len(children):
            q_V = q_V.clone()
            q_V[token_id] = 0
            q_V = q_V / q_V.sum()
    return None, p_V
