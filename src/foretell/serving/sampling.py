"""A request's fields to SamplingParams, and how deep it is drafted."""

from __future__ import annotations

from typing import Any

from foretell.errors import UsageError
from foretell.sampling_params import SamplingParams
from foretell.serving.errors import APIError
from foretell.serving.fields import SamplingFields
from foretell.serving.service import Service
from foretell.types import Depth


def sampling_params(
    request: SamplingFields, max_tokens: int, logprobs: int | None, vocab_size: int, **more: Any
) -> SamplingParams:
    """``logprobs``: alternatives a token, None for none at all; ``more``: fields of SamplingParams."""
    bias: dict[int, float] = {}
    for key, value in request.logit_bias.items():
        if not (key.isascii() and key.isdigit() and len(key) < 12 and int(key) < vocab_size):
            raise APIError(
                400,
                f"logit_bias: {key[:40]!r} is no token id of this model; give ids from 0 to {vocab_size - 1}",
                "logit_bias",
                "invalid_value",
            )
        bias[int(key)] = value
    if request.min_tokens > max_tokens:
        raise APIError(
            400,
            f"min_tokens: {request.min_tokens} is more than max_tokens ({max_tokens})",
            "min_tokens",
            "invalid_value",
        )
    schema = request.response_format.json_schema if request.response_format else None
    fields: dict[str, Any] = {
        "max_tokens": max_tokens,
        "n": request.n,
        "temperature": request.temperature,
        "top_k": request.top_k,
        "top_p": request.top_p,
        "min_p": request.min_p,
        "seed": None if request.seed is None else request.seed % 2**63,
        "stop": request.stop,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "repetition_penalty": request.repetition_penalty,
        "logit_bias": bias or None,
        "min_tokens": request.min_tokens,
        "ignore_eos": request.ignore_eos,
        "json_object": request.response_format is not None and request.response_format.type == "json_object",
        "json_schema": schema.schema_ if schema else None,
        "logprobs": 0 if logprobs is None and request.wants_details else logprobs,
    }
    return SamplingParams(**fields | more)


def depth_of(request: SamplingFields, service: Service) -> Depth:
    """What the request asks for, if it can be had; else the server's own. Raises APIError.

    A sampled text with a seed gets a fixed depth, because "auto"
    looks at the clock, and another depth draws other random numbers.
    """
    settings, engine = service.settings, service.engine
    asked = request.speculative
    policy = asked.policy if asked else None
    depth = asked.depth if asked else None
    if policy == "off":
        if depth:
            raise APIError(400, 'speculative.depth: policy "off" drafts nothing; leave it out', "speculative.depth")
        return 0
    if policy in ("auto", "fixed") and engine.drafter is None:
        raise APIError(400, "speculative.policy: this server has nobody who drafts; leave it out", "speculative.policy")
    if policy == "auto":
        if depth is not None:
            raise APIError(400, 'speculative.depth: policy "auto" chooses it; leave it out', "speculative.depth")
        return "auto"
    if depth is not None:
        try:
            engine.check_depth(depth)
        except UsageError as error:
            raise APIError(400, f"speculative.depth: {error}", "speculative.depth", "invalid_value") from error
        return depth
    is_seeded = request.seed is not None and request.temperature > 0
    return settings.fixed_depth if policy == "fixed" or (is_seeded and settings.depth == "auto") else settings.depth
