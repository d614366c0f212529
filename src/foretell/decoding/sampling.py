"""The sampling pipeline: one function, used by plain decoding, by drafting and by verifying alike."""

from __future__ import annotations

import math

import torch

from foretell.config import SamplingParams
from foretell.errors import ForetellError
from foretell.models.greedy import argmax


def filtered_probs(logits_NV: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Logits -> the distribution that is sampled: temperature, top-k, top-p on the re-normalised rest, min-p.

    Computed in float32 (or float64 where the logits are). Greedy params give a point mass on the argmax.
    """
    logits = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
    if params.greedy:
        return torch.zeros_like(logits).scatter_(-1, argmax(logits).unsqueeze(-1), 1.0)
    logits = (logits - logits.max(-1, keepdim=True).values) / params.temperature
    if 0 < params.top_k < logits.shape[-1]:
        kept, indices = logits.topk(params.top_k, dim=-1)
    elif params.top_p < 1:
        kept, indices = logits.sort(dim=-1, descending=True, stable=True)
    else:
        return _min_p(logits.softmax(-1), params.min_p)
    probs = kept.softmax(-1)
    if params.top_p < 1:
        # A token stays while the mass before it is below top_p, so at least one always stays.
        probs = probs * ((probs.cumsum(-1) - probs) < params.top_p)
        probs = probs / probs.sum(-1, keepdim=True)
    return torch.zeros_like(logits).scatter_(-1, indices, _min_p(probs, params.min_p))


def _min_p(probs: torch.Tensor, min_p: float) -> torch.Tensor:
    if min_p <= 0:
        return probs
    probs = probs * (probs >= min_p * probs.max(-1, keepdim=True).values)
    return probs / probs.sum(-1, keepdim=True)


def draw(probs_V: torch.Tensor, generator: torch.Generator) -> int:
    """One token id from a distribution, with the request's own generator (which lives on the CPU)."""
    # The inverse of the distribution function: one random number a token, twenty times faster than torch.multinomial
    # over 49,152 entries. u is below the total, so the entry found has some mass; the weights need not sum to one.
    mass_V = probs_V.to(generator.device).cumsum(-1, dtype=torch.float64)
    if not 0 < float(mass_V[-1]) < math.inf:  # NaN too
        raise ForetellError("the model's logits are not finite, so no token can be sampled; try --dtype float32")
    u = torch.rand(1, dtype=torch.float64, generator=generator, device=generator.device) * mass_V[-1]
    return min(int(torch.searchsorted(mass_V, u, right=True)), int(torch.searchsorted(mass_V, mass_V[-1])))
