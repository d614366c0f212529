"""SamplingParams: what is refused, by name, and what is brought into one form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import foretell
from foretell.config import SamplingParams
from foretell.errors import SamplingError


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("max_tokens", 0, "at least 1"),
        ("temperature", -1, "from 0 (greedy) to 100"),
        ("seed", 2**63, "2**63 - 1"),
        ("stop", [""], "non-empty strings"),
        ("repetition_penalty", 0, "above 0"),
        ("repetition_penalty", float("inf"), "above 0"),
        ("repetition_penalty", None, "above 0"),
        ("presence_penalty", 2.1, "from -2 to 2"),
        ("frequency_penalty", -3, "from -2 to 2"),
        ("frequency_penalty", True, "from -2 to 2"),
        ("logit_bias", {5: 101}, "from -100 to 100"),
        ("logit_bias", {"5": 1.0}, "token ids"),
        ("logit_bias", {-1: 1.0}, "token ids"),
        ("logit_bias", [5], "mapping"),
        ("bad_words", [""], "non-empty strings"),
        ("bad_words", [[]], "non-empty lists of token ids"),
        ("bad_words", [3], "lists of token ids"),
        ("bad_words", [[-1]], "lists of token ids"),
        ("min_tokens", -1, "from 0 to max_tokens (128)"),
        ("min_tokens", 129, "from 0 to max_tokens (128)"),
        ("logits_processors", [3], "callables"),
        ("logits_processors", max, "a list of callables"),
        ("logprobs", -1, "at least 0"),
        ("logprobs", True, "at least 0"),
        ("prompt_logprobs", 1.5, "at least 0"),
        ("n", 0, "at least 1"),
        ("json_schema", "{", "a JSON object"),
        ("json_schema", "[1]", "a JSON object"),
        ("json_schema", {"a": {1}}, "a JSON object"),
        ("json_object", 1, "true or false"),
        ("regex", "", "a non-empty string"),
        ("choice", "yes", "a list of non-empty strings"),
        ("choice", [], "at least one"),
        ("grammar", 7, "a non-empty string"),
        ("typical_acceptance", 0.3, "with a temperature above 0"),
    ],
    ids=str,
)
def test_what_is_not_allowed_is_refused_by_name(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(SamplingError) as caught:
        SamplingParams(**{field: value})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: {value!r} is not allowed; give ") and allowed in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("epsilon", [0, 1, -0.1, "0.3", True])
def test_typical_acceptance_is_a_share(epsilon: Any) -> None:
    assert SamplingParams(temperature=1.0, typical_acceptance=0.3).typical_acceptance == 0.3
    with pytest.raises(SamplingError, match="typical_acceptance"):
        SamplingParams(temperature=1.0, typical_acceptance=epsilon)


def test_one_grammar_at_most() -> None:
    with pytest.raises(SamplingError, match="regex: does not go with json_schema; give one of") as caught:
        SamplingParams(regex="a", json_schema={})
    assert caught.value.field == "regex"
    assert SamplingParams().grammar_field is None
    given = {"json_schema": {}, "json_object": True, "regex": "a", "choice": ["a"], "grammar": "start: /a/"}
    for name, value in given.items():
        assert SamplingParams(**{name: value}).grammar_field == name  # type: ignore[arg-type]


def test_lists_become_tuples_and_copies_stay_equal() -> None:
    processors = [lambda input_ids, scores: scores]
    params = SamplingParams(
        stop="x",
        bad_words=["a", [1, 2]],
        logits_processors=processors,
        choice=["b"],
        logit_bias={3: -100},
        min_tokens=2,
    )
    assert params.stop == ("x",) and params.bad_words == ("a", (1, 2)) and params.choice == ("b",)
    assert params.logits_processors == tuple(processors)
    assert replace(params, n=1) == params
    assert SamplingParams(bad_words="a").bad_words == ("a",)
    assert foretell.SamplingParams is SamplingParams
