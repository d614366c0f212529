"""What an lm-eval task asks of a text (``generation_kwargs``) as SamplingParams; nothing is dropped unsaid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lm_eval.models.utils import normalize_gen_kwargs

from foretell.config import SamplingParams
from foretell.errors import SamplingError, UsageError

_SAME = (
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "min_tokens",
    "ignore_eos",
    "seed",
)
"""Options with the name and the meaning they have in SamplingParams."""
_IDLE = {"num_beams": (1,), "num_return_sequences": (1,), "use_cache": (True,), "penalty_alpha": (0, None)}
"""Options of transformers' ``generate`` that some tasks write out, and the values that change nothing."""


@dataclass(frozen=True)
class Request:
    """``stop``: the strings that end the text."""

    params: SamplingParams
    stop: tuple[str, ...]


def request_of(kwargs: dict[str, Any], max_gen_toks: int, seed: int, name: str) -> Request:
    """``kwargs`` of one request, ``max_gen_toks`` and ``seed`` where it gives none.

    Greedy unless it samples by ``do_sample`` or a temperature above 0. Raises UsageError, beginning with ``name``, for
    options there are none of here and for wrong values.
    """
    try:
        given = dict(normalize_gen_kwargs(kwargs, max_gen_toks))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}: generation_kwargs {kwargs!r} cannot be read ({error})") from error
    until, max_tokens = given.pop("until"), given.pop("max_gen_toks")
    temperature = given.pop("temperature", 0.0)  # 0 where the task says not to sample
    del given["do_sample"]
    for option, value in given.items():
        if option not in _SAME and value not in _IDLE.get(option, ()):
            raise UsageError(
                f"{name}: generation_kwargs {option}={value!r} is not allowed; there are until, max_gen_toks, "
                f"do_sample, temperature, {', '.join(_SAME)}"
            )
    if not all(isinstance(stop, str) for stop in until):
        raise UsageError(f"{name}: generation_kwargs until={until!r} is not allowed; give a list of strings")
    stops = tuple(stop for stop in until if stop)  # "" is how tasks say that there is none
    own = {option: value for option, value in given.items() if option in _SAME and value is not None}
    try:
        params = SamplingParams(**{"seed": seed, **own}, max_tokens=max_tokens, temperature=temperature, stop=stops)
    except SamplingError as error:
        raise UsageError(f"{name}: generation_kwargs {error.field}: {error.message}") from error
    return Request(params, stops)
