"""SamplingParams: how a request is sampled and when it stops, with its checks. No torch import."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from foretell.errors import SamplingError

GREEDY_TEMPERATURE = 1e-4
"""Temperatures at or below this are greedy: argmax, no random number drawn."""

GRAMMAR_FIELDS = ("json_schema", "json_object", "regex", "choice", "grammar")
"""Fields that say which texts are allowed; a request gives at most one."""


@dataclass(frozen=True)
class SamplingParams:
    """How one request is sampled and when it stops. ``temperature=0`` is greedy.

    Order: the rules on logits (penalties, bias, bans, processors, grammar; see `decoding.rules`), then the filters:
    temperature, top-k, top-p on the re-normalised rest, min-p relative to the largest.

    ``repetition_penalty`` divides or multiplies the logits of tokens in prompt or output (CTRL, arXiv 1909.05858; 1 =
    off). ``presence_penalty`` and ``frequency_penalty`` are OpenAI's: taken off once, and once per occurrence, for
    tokens of the output. ``logit_bias``: token id -> what is added to its logit. ``bad_words``: strings, or lists of
    token ids, that the text never completes. ``min_tokens``: no EOS before so many output tokens.
    ``logits_processors``: callables as in transformers, (input_ids (1, T), scores (1, V)) -> scores. They are called
    for drafted paths too, so they must depend on what they are given alone and keep no history of their own.
    ``logprobs``: alternatives reported beside each output token's log-probability (0 = that of the token alone, None =
    nothing), ``prompt_logprobs`` likewise for the prompt. ``n``: completions of one prompt.
    ``json_schema`` (dict or JSON text), ``json_object``, ``regex``, ``choice`` (one of these strings) and ``grammar``
    (Lark text): at most one; the text is kept to it.
    ``typical_acceptance`` is LOSSY: drafts are accepted by Medusa's rule (arXiv 2401.10774, section 2.3.1) with this
    epsilon, so the text does not follow the trunk's distribution. Only with a temperature above 0.
    """

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] | list[str] | str | None = ()
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None
    bad_words: Sequence[str | Sequence[int]] = ()
    min_tokens: int = 0
    logits_processors: Sequence[Callable[..., Any]] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    n: int = 1
    json_schema: dict[str, Any] | str | None = None
    json_object: bool = False
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    typical_acceptance: float | None = None

    def __post_init__(self) -> None:
        self._check_filters()
        self._check_rules()
        self._check_grammar()
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                self._check(name, _is_count(getattr(self, name)), "an integer of at least 0, or none")
        self._check("ignore_eos", isinstance(self.ignore_eos, bool), "true or false")
        self._check("n", _is_count(self.n, 1), "an integer of at least 1")
        if self.typical_acceptance is not None:
            allowed = "a number above 0 and below 1, with a temperature above 0; or none (drafts are judged losslessly)"
            fits = _in_range(self.typical_acceptance, 0, 1) and 0 < self.typical_acceptance < 1
            self._check("typical_acceptance", fits and not self.greedy, allowed)

    @property
    def greedy(self) -> bool:
        """True where the argmax is taken and no random number is drawn."""
        return self.temperature <= GREEDY_TEMPERATURE

    @property
    def grammar_field(self) -> str | None:
        """The field that says which texts are allowed, or None where every text is."""
        return next((name for name in GRAMMAR_FIELDS if getattr(self, name) not in (None, False)), None)

    def _check_filters(self) -> None:
        stop = _strings(self.stop)
        self._check("stop", stop is not None, "non-empty strings")
        object.__setattr__(self, "stop", stop)
        self._check("max_tokens", _is_count(self.max_tokens, 1), "an integer of at least 1")
        self._check("temperature", _in_range(self.temperature, 0, 100), "a number from 0 (greedy) to 100")
        self._check("top_k", _is_count(self.top_k), "an integer of at least 0 (0 = off)")
        allowed = "a number above 0 and at most 1 (1 = off)"
        self._check("top_p", _in_range(self.top_p, 0, 1) and self.top_p > 0, allowed)
        self._check("min_p", _in_range(self.min_p, 0, 1), "a number from 0 (off) to 1")
        if self.seed is not None:
            fits = _is_count(self.seed) and self.seed < 2**63
            self._check("seed", fits, "an integer from 0 to 2**63 - 1, or none")

    def _check_rules(self) -> None:
        penalty = self.repetition_penalty
        fits = _in_range(penalty, 0, math.inf) and penalty > 0
        self._check("repetition_penalty", fits, "a number above 0 (1 = off)")
        for name in ("presence_penalty", "frequency_penalty"):
            self._check(name, _in_range(getattr(self, name), -2, 2), "a number from -2 to 2 (0 = off)")
        bias = self.logit_bias
        fits = bias is None or (
            isinstance(bias, dict) and all(_is_count(k) and _in_range(v, -100, 100) for k, v in bias.items())
        )
        self._check("logit_bias", fits, "a mapping from token ids to numbers from -100 to 100")
        bad_words = _words(self.bad_words)
        self._check("bad_words", bad_words is not None, "non-empty strings or non-empty lists of token ids")
        object.__setattr__(self, "bad_words", bad_words)
        fits = _is_count(self.min_tokens) and self.min_tokens <= self.max_tokens
        self._check("min_tokens", fits, f"an integer from 0 to max_tokens ({self.max_tokens})")
        processors = self.logits_processors
        fits = isinstance(processors, (tuple, list)) and all(map(callable, processors))
        self._check("logits_processors", fits, "a list of callables (input_ids, scores) -> scores")
        object.__setattr__(self, "logits_processors", tuple(processors))

    def _check_grammar(self) -> None:
        self._check("json_schema", _is_schema(self.json_schema), "a JSON object, as a dict or as text")
        self._check("json_object", isinstance(self.json_object, bool), "true or false")
        for name in ("regex", "grammar"):
            value = getattr(self, name)
            self._check(name, value is None or (isinstance(value, str) and value != ""), "a non-empty string")
        if self.choice is not None:
            choice = None if isinstance(self.choice, str) else _strings(self.choice)
            self._check("choice", bool(choice), "a list of non-empty strings, at least one")
            object.__setattr__(self, "choice", choice)
        given = [name for name in GRAMMAR_FIELDS if getattr(self, name) not in (None, False)]
        if len(given) > 1:
            raise SamplingError(f"does not go with {given[0]}; give one of {', '.join(GRAMMAR_FIELDS)}", given[1])

    def _check(self, field: str, fits: bool, allowed: str) -> None:
        if not fits:
            raise SamplingError(f"{getattr(self, field)!r} is not allowed; give {allowed}", field)


def _is_count(value: object, at_least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= at_least


def _in_range(value: object, low: float, high: float) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and low <= value <= high  # type: ignore[arg-type, operator]


def _strings(value: object) -> tuple[str, ...] | None:
    """``value`` as a tuple of non-empty strings, a lone one included; None where it is something else."""
    values = () if value is None else (value,) if isinstance(value, str) else value
    good = isinstance(values, (tuple, list)) and all(isinstance(s, str) and s for s in values)
    return tuple(values) if good else None  # type: ignore[arg-type]


def _words(value: object) -> tuple[str | tuple[int, ...], ...] | None:
    """Strings, and lists of token ids as tuples; None where something else or an empty word is among them."""
    values = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(values, (tuple, list)):
        return None
    words = [
        word if isinstance(word, str) else tuple(word) if isinstance(word, (tuple, list)) else () for word in values
    ]
    good = all(word and (isinstance(word, str) or all(map(_is_count, word))) for word in words)
    return tuple(words) if good else None


def _is_schema(value: object) -> bool:
    try:
        if isinstance(value, str):
            return isinstance(json.loads(value), dict)
        return value is None or (isinstance(value, dict) and bool(json.dumps(value)))
    except (TypeError, ValueError):
        return False
