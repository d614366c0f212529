"""Grammars: what is finished parses; looking along drafted paths leaves nothing behind."""

from __future__ import annotations

import gc
import json
import random
import re
import sys
import weakref
from collections.abc import Callable
from typing import Any

import llguidance
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from foretell.config import SamplingParams
from foretell.decoding.grammar import GrammarState
from foretell.errors import SamplingError
from foretell.training.recipe import TokenizerConfig
from foretell.training.tokenizer import make_tokenizer
from tests.fixtures import EOS, VOCAB_SIZE, byte_tokenizer

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "colour": {"enum": ["red", "green"]},
        "rows": {
            "type": "array",
            "items": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
            "maxItems": 2,
        },
    },
    "required": ["name", "colour", "rows"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},  # a random text would write spaces without end
}
REGEX = r"(ab|[0-9]{2,3}é)+;?"
LARK = 'start: "let " NAME ("=" NAME)?\nNAME: /[a-c]{1,3}/'


def fits_schema(text: str) -> bool:
    found = json.loads(text)
    rows_fit = all(isinstance(n, int) for row in found["rows"] for n in row)
    return list(found) == ["name", "colour", "rows"] and found["colour"] in ("red", "green") and rows_fit


GRAMMARS: dict[str, tuple[dict[str, Any], Callable[[str], object]]] = {
    "json_schema": ({"json_schema": SCHEMA}, fits_schema),
    "text of a schema": ({"json_schema": json.dumps(SCHEMA)}, fits_schema),
    "json_object": ({"json_object": True}, lambda text: isinstance(json.loads(text), dict)),
    "regex": ({"regex": REGEX}, lambda text: re.fullmatch(REGEX, text)),
    "choice": ({"choice": ["yes", "yes!", 'n"o\n', "é😀"]}, lambda text: text in ("yes", "yes!", 'n"o\n', "é😀")),
    "grammar": ({"grammar": LARK}, lambda text: re.fullmatch(r"let [a-c]{1,3}(=[a-c]{1,3})?", text)),
}
BYTES = byte_tokenizer()
WORDS = make_tokenizer(
    TokenizerConfig(kind="bpe", vocab_size=400),
    ['{"name": "abc", "colour": "red", "rows": [[12, 3]]} yes no let ab=abc green 123é'] * 50,
)
TOKENIZERS = {"bytes": BYTES, "words": WORDS}


def state(tokenizer: PreTrainedTokenizerFast = BYTES, vocab_size: int = 0, **params: Any) -> GrammarState:
    return GrammarState(SamplingParams(**params), tokenizer, vocab_size or len(tokenizer), [tokenizer.eos_token_id])


def encode(text: str) -> list[int]:
    return BYTES(text, add_special_tokens=False)["input_ids"]


def choices(mask: torch.Tensor) -> list[int]:
    return mask.nonzero().flatten().tolist()


def walk(grammar: GrammarState, eos: int, rng: random.Random, path: list[int], length: int) -> list[int]:
    """Up to ``length`` random allowed tokens after ``path``; the last may be EOS. Nothing is committed."""
    tokens: list[int] = []
    while len(tokens) < length and eos not in tokens:
        allowed = choices(grammar.allowed([path + tokens])[0])
        tokens.append(eos if eos in allowed and rng.random() < 0.5 else rng.choice(allowed))
    return tokens


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@pytest.mark.parametrize("name", GRAMMARS)
def test_a_finished_text_parses_and_rejected_paths_leave_nothing(name: str, tokenizer: PreTrainedTokenizerFast) -> None:
    params, parses = GRAMMARS[name]
    eos = tokenizer.eos_token_id
    num_finished = 0
    for seed in range(3):
        rng = random.Random(seed)
        grammar, text = state(tokenizer, **params), list[int]()
        while eos not in text and len(text) < 120:
            good = walk(grammar, eos, rng, [], 3)
            bad = [rng.randrange(len(tokenizer)) for _ in range(3)]
            tree = [[], good[:1], good[:2], good, bad[:1], bad, good[:1] + bad[:1], walk(grammar, eos, rng, [], 3)]
            masks = grammar.allowed(tree)
            forced = grammar.forced(5)
            fresh = state(tokenizer, **params)
            fresh.commit(text)
            assert torch.equal(grammar.allowed([[]]), fresh.allowed([[]])) and fresh.forced(5) == forced
            for path, mask in zip(tree, masks, strict=True):  # a tree's rows are those of its paths alone
                alone = state(tokenizer, **params)
                alone.commit(text)
                assert torch.equal(alone.allowed([path])[0], mask)
            step = good[: rng.randint(1, len(good))]
            grammar.commit(step)
            text += step
        if text[-1] == eos:
            num_finished += 1
            assert parses(tokenizer.decode(text[:-1])), tokenizer.decode(text)
    assert num_finished > 0


def test_eos_is_allowed_only_where_the_text_may_end() -> None:
    for text, may_end in [("", False), ("a", False), ("ab", True), ("ab1", False), ("ab12é", True), ("ab;", True)]:
        grammar = state(regex=REGEX)
        grammar.commit(encode(text))
        assert (EOS in choices(grammar.allowed([[]])[0])) == may_end, text
        if text == "ab;":
            assert choices(grammar.allowed([[]])[0]) == [EOS]


def test_every_eos_of_a_model_ends_the_text() -> None:
    grammar = GrammarState(SamplingParams(regex="ab?"), BYTES, VOCAB_SIZE, [EOS, 257])
    grammar.commit(encode("a"))
    [b] = encode("b")
    assert choices(grammar.allowed([[]])[0]) == [b, EOS, 257]
    assert choices(grammar.allowed([[b]])[0]) == [EOS, 257]
    assert choices(grammar.allowed([[257]])[0]) == [EOS, 257]
    grammar.commit(encode("b"))
    assert grammar.forced(4) == []  # two ways to end are a choice


@pytest.mark.parametrize("text", ["ab", "ab;"])  # may go on; must end
def test_after_eos_nothing_crashes(text: str) -> None:
    grammar = state(regex=REGEX)
    grammar.commit(encode(text))
    before = grammar.allowed([[]])
    for path in ([EOS], [EOS, EOS], [EOS, 5]):
        assert choices(grammar.allowed([path])[0]) == [EOS]
        assert torch.equal(grammar.allowed([[]]), before)
    grammar.commit([EOS])
    grammar.commit([EOS, 5])
    assert choices(grammar.allowed([[]])[0]) == choices(grammar.allowed([[7]])[0]) == [EOS]
    assert grammar.forced(3) == [EOS]


def test_a_path_off_the_grammar_is_left_alone() -> None:
    grammar = state(choice=["yes"])
    masks = grammar.allowed([[], encode("n"), encode("yn"), encode("y")])
    assert [len(choices(mask)) for mask in masks] == [1, len(BYTES), len(BYTES), 1]


def test_forced_tokens_are_what_the_grammar_leaves() -> None:
    grammar = state(json_schema=SCHEMA)
    assert grammar.forced(99) == encode('{"name":"')
    assert grammar.forced(3) == encode('{"n') and grammar.forced(0) == []
    grammar.commit(encode('{"name":"'))
    assert grammar.forced(9) == []
    grammar.commit(encode('ab","colour":"r'))
    assert grammar.forced(99) == encode('ed","rows":[')
    choice = state(choice=["yes"])
    assert choice.forced(9) == [*encode("yes"), EOS] and choice.forced(3) == encode("yes")
    words = state(WORDS, json_schema=SCHEMA)
    forced = words.forced(99)
    assert forced == WORDS('{"name":"', add_special_tokens=False)["input_ids"][: len(forced)] and len(forced) > 2


def test_output_rows_and_tokens_may_differ_in_number() -> None:
    more = state(vocab_size=300, regex=".*")
    assert more.allowed([[]]).shape == (1, 300) and not more.allowed([[]])[0, VOCAB_SIZE:].any()
    fewer = state(vocab_size=EOS + 1, regex=".*")
    assert torch.equal(fewer.allowed([[]])[0], more.allowed([[]])[0, : EOS + 1])


def test_the_tokenizer_is_read_once_and_not_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = byte_tokenizer()
    grammar = state(tokenizer, regex="a")
    monkeypatch.setattr("llguidance.hf.from_tokenizer", None)
    state(tokenizer, regex="b")
    alive = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert alive() is None and choices(grammar.allowed([[]])[0]) == encode("a")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("json_schema", {"type": "bogus"}),
        ("json_schema", {"type": "object", "dependentSchemas": {}}),
        ("regex", "a(b"),
        ("regex", "(?=a)b"),
        ("grammar", "start: foo"),
        ("grammar", "nonsense"),
    ],
    ids=str,
)
def test_a_grammar_that_cannot_be_compiled_is_refused(field: str, value: Any) -> None:
    with pytest.raises(SamplingError) as caught:
        state(**{field: value})
    assert caught.value.field == field and str(caught.value).startswith(f"{field}: cannot be compiled: ")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(regex="a")
    with pytest.raises(SamplingError, match="regex: the model has no EOS"):
        GrammarState(params, BYTES, VOCAB_SIZE, [])
    with pytest.raises(SamplingError, match="regex: needs a fast tokenizer .*no tokenizer"):
        GrammarState(params, None, VOCAB_SIZE, [EOS])
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(SamplingError, match=r"regex: needs llguidance; pip install 'foretell\[serve\]'"):
        GrammarState(params, BYTES, VOCAB_SIZE, [EOS])


@pytest.mark.parametrize("tokens", [encode("x"), [EOS]])
def test_a_token_against_the_grammar_is_not_committed(tokens: list[int]) -> None:
    grammar = state(regex="ab")
    with pytest.raises(SamplingError, match="regex: the text left the grammar"):
        grammar.commit(tokens)


def test_a_limit_on_work_is_an_error_not_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """llguidance would allow EOS, in the middle of an object."""

    real = llguidance.LLMatcher

    class Limited:
        grammar_from_json_schema = real.grammar_from_json_schema

        def __new__(cls, tokenizer: Any, text: str, log_level: int) -> Any:
            limits = llguidance.LLParserLimits(step_lexer_fuel=1, step_max_items=1, max_lexer_states=3)
            return real(tokenizer, text, log_level=log_level, limits=limits)

    monkeypatch.setattr(llguidance, "LLMatcher", Limited)
    grammar = state(json_object=True)
    with pytest.raises(SamplingError, match="json_object: is too complex"):
        grammar.allowed([encode("{")])
