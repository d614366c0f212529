from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from foretell.cli.params import build_params
from foretell.config import SamplingParams
from foretell.errors import SamplingError, UsageError

SCHEMA = {"type": "object"}
VALUES: dict[str, tuple[str, Any]] = {
    "max_tokens": ("64", 64),
    "temperature": ("1", 1.0),
    "top_k": ("40", 40),
    "top_p": ("0.9", 0.9),
    "min_p": ("0.05", 0.05),
    "seed": ("7", 7),
    "stop": ('["a", "b"]', ("a", "b")),
    "ignore_eos": ("True", True),
    "repetition_penalty": ("1.3", 1.3),
    "presence_penalty": ("-0.5", -0.5),
    "frequency_penalty": ("2", 2.0),
    "logit_bias": ('{"42": -100, "7": 1.5}', {42: -100, 7: 1.5}),
    "bad_words": ('["foo", [12, 7]]', ("foo", (12, 7))),
    "min_tokens": ("5", 5),
    "logprobs": ("0", 0),
    "prompt_logprobs": ("2", 2),
    "n": ("3", 3),
    "json_schema": (json.dumps(SCHEMA), json.dumps(SCHEMA)),
    "json_object": ("true", True),
    "regex": ("a=b+", "a=b+"),
    "choice": ('["yes", "no"]', ("yes", "no")),
    "grammar": ('start: "a"', 'start: "a"'),
    "typical_acceptance": ("0.1", 0.1),
}


def test_every_field_is_tried() -> None:
    """A new field of SamplingParams must be readable from a command line too."""
    assert set(VALUES) == {f.name for f in fields(SamplingParams)} - {"logits_processors"}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_has_its_fields_type(name: str) -> None:
    text, value = VALUES[name]
    more = ["temperature=1"] if name == "typical_acceptance" else []
    found = getattr(build_params([f"{name}={text}", *more]), name)
    assert found == value and type(found) is type(value)


def test_pairs_and_options_together() -> None:
    params = build_params(["top-p=0.5", "n=2"], max_tokens=9, temperature=0.7, seed=None, stop=("x",))
    assert params == SamplingParams(top_p=0.5, n=2, max_tokens=9, temperature=0.7, stop=("x",))
    assert build_params(None, max_tokens=128, stop=()) == SamplingParams()
    assert build_params(["seed=3"], seed=None).seed == 3  # the option was not given
    with pytest.raises(SamplingError, match="^temperature: -1.0"):  # an option's own error stays its own
        build_params(["n=2"], temperature=-1.0)


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA) + "\n", encoding="utf-8")
    assert build_params([f"json_schema=@{tmp_path}/schema.json"]).json_schema == json.dumps(SCHEMA)
    (tmp_path / "bias.json").write_text('{"3": 1}', encoding="utf-8")
    assert build_params([f"logit_bias=@{tmp_path}/bias.json"]).logit_bias == {3: 1}
    assert build_params(["regex=@@[a-z]+"]).regex == "@[a-z]+"


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (["repetition_penality=1.3"], ["repetition_penality", "did you mean repetition_penalty?"]),
        (["zzz=1"], ["zzz", "there are max_tokens", "typical_acceptance"]),
        (["top_p"], ['"top_p" has no value', "top_p=VALUE"]),
        (["top_p=much"], ["--params top_p", "much", "a number"]),
        (["top_k=1.5"], ["--params top_k", "1.5", "an integer"]),
        (["top_p=2"], ["--params top_p", "2.0 is not allowed", "at most 1"]),
        (["json_object=1"], ["--params json_object", "true or false"]),
        (["bad_words=foo"], ["--params bad_words", "no JSON", "'bad_words=[\"foo\", [12, 7]]'"]),
        (['bad_words={"a": 1}'], ["--params bad_words", "non-empty strings"]),
        (['logit_bias={"a": 1}'], ["--params logit_bias", "mapping from token ids"]),
        (["logit_bias=[1]"], ["--params logit_bias", "mapping from token ids"]),
        (["json_schema=[1]"], ["--params json_schema", "a JSON object"]),
        (["json_schema=@nowhere.json"], ["--params json_schema", "nowhere.json", "No such file", "@@"]),
        (["n=2", "n=3"], ["--params n", "twice"]),
        (["max_tokens=5"], ["--params max_tokens", "--max-tokens"]),
        (["logits_processors=[]"], ["--params logits_processors", "Python"]),
        (["regex=a", 'choice=["a"]'], ["--params choice", "does not go with regex"]),
    ],
)
def test_what_is_wrong_is_said(pairs: list[str], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        build_params(pairs, max_tokens=64)
    for word in words:
        assert re.search(re.escape(word), str(caught.value))
