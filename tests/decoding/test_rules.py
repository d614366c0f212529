"""LogitRules against transformers' own processors, plain Python, and rules built anew for every prefix."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LogitsProcessorList
from transformers.generation import (
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from foretell.config import SamplingParams
from foretell.decoding.rules import LogitRules
from foretell.decoding.sampling import filtered_probs
from foretell.decoding.verify import verify_greedy, verify_sampled
from foretell.errors import SamplingError
from foretell.types import Draft
from tests.fixtures import EOS, VOCAB_SIZE, byte_tokenizer, encode

PROMPT = encode("a cat sat on a mat")
OUTPUT = encode(" and a rat")
TREE = [encode(path) for path in ("", " ", " s", " sat", "zz", "\x00", " and a cat")]
BAD_WORDS = [encode("at "), encode("rat sat"), encode("z"), encode("q"), [EOS], encode("cat sat on a mat" * 9)]


def logits_of(num_rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, VOCAB_SIZE, generator=torch.Generator().manual_seed(seed)) * 4


def rules(prompt: list[int] = PROMPT, vocab_size: int = VOCAB_SIZE, **params: Any) -> LogitRules:
    return LogitRules(SamplingParams(**params), prompt, vocab_size, byte_tokenizer(), [EOS])


def every_other(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """A processor that depends on the last token and the length, and writes into what it is given."""
    scores[:, int(input_ids[0, -1]) % 2 :: 2] -= 0.1 * input_ids.shape[1]
    return scores


def processors(min_new_tokens: int = 0) -> dict[str, tuple[dict[str, Any], list[Any]]]:
    """Our parameters, and the list that transformers' `generate` would build."""
    bias = SequenceBiasLogitsProcessor({(5,): 3.0, (EOS,): -100.0, (200,): 0.5})
    repetition = RepetitionPenaltyLogitsProcessor(1.3)
    bad_words = NoBadWordsLogitsProcessor(BAD_WORDS, EOS)
    min_new = MinNewTokensLengthLogitsProcessor(len(PROMPT), min_new_tokens, EOS)
    own = [every_other, NoRepeatNGramLogitsProcessor(2)]
    table: dict[str, tuple[dict[str, Any], list[Any]]] = {
        "logit_bias": ({"logit_bias": {5: 3, EOS: -100, 200: 0.5}}, [bias]),
        "repetition": ({"repetition_penalty": 1.3}, [repetition]),
        "bad_words": ({"bad_words": BAD_WORDS}, [bad_words]),
        "min_tokens": ({"min_tokens": min_new_tokens}, [min_new]),
        "processors": ({"logits_processors": own}, own),
    }
    together = {name: value for params, _ in table.values() for name, value in params.items()}
    return table | {"together": (together, [bias, repetition, bad_words, min_new, *own])}


@pytest.mark.parametrize("name", processors())
@pytest.mark.parametrize("prompt", [PROMPT, PROMPT[:1]], ids=["prompt", "one token"])
def test_equal_to_transformers(name: str, prompt: list[int]) -> None:
    # EOS is banned after the first rows of the tree and allowed after the last.
    params, theirs = processors(len(OUTPUT) + 2)[name]
    for processor in theirs:
        if isinstance(processor, MinNewTokensLengthLogitsProcessor):
            processor.prompt_length_to_skip = len(prompt)
    logits_NV = logits_of(len(TREE))
    before = logits_NV.clone()
    found = rules(prompt, **params).apply(logits_NV, OUTPUT, TREE)
    assert torch.equal(logits_NV, before), "the input was changed"
    for row, path in enumerate(TREE):
        expected = LogitsProcessorList(theirs)(torch.tensor([prompt + OUTPUT + path]), before[row : row + 1].clone())
        assert torch.equal(found[row], expected[0]), path
    assert not torch.equal(found, before)


@pytest.mark.parametrize(
    ("repetition", "presence", "frequency"), [(1, 0.5, 0), (1, 0, 0.7), (1, -2, 2), (1.3, 0.5, 0.7)]
)
def test_penalties_in_plain_python(repetition: float, presence: float, frequency: float) -> None:
    names = dict(repetition_penalty=repetition, presence_penalty=presence, frequency_penalty=frequency)
    logits_NV = logits_of(len(TREE)).double()
    found = rules(**names).apply(logits_NV, OUTPUT, TREE)
    for row, path in enumerate(TREE):
        counts = Counter(OUTPUT + path)  # the prompt does not count for OpenAI's
        for token, value in enumerate(logits_NV[row].tolist()):
            if token in counts or token in PROMPT:
                value = value / repetition if value > 0 else value * repetition
            value -= presence * (token in counts) + frequency * counts[token]
            assert found[row, token].item() == pytest.approx(value, abs=1e-6)


MIXED = dict(
    repetition_penalty=1.3,
    presence_penalty=0.5,
    frequency_penalty=0.7,
    logit_bias={97: 2.0, EOS: 1.0},
    bad_words=["at", [5, 6], [7], [1, 2, 3]],
    min_tokens=6,
    logits_processors=[NoRepeatNGramLogitsProcessor(3), every_other],
)
SMALL = st.lists(st.integers(0, 9) | st.just(EOS), max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    SMALL, st.lists(st.tuples(SMALL, st.lists(SMALL, min_size=1, max_size=4)), min_size=1, max_size=5), st.booleans()
)
def test_any_history_equals_rules_built_anew(
    prompt: list[int], steps: list[tuple[list[int], list[list[int]]]], commits: bool
) -> None:
    """Rejected paths leave nothing behind; it does not matter who commits; a row does not see its neighbours."""
    prompt = [3, *prompt]
    kept, output = rules(prompt, **MIXED), list[int]()
    for seed, (new, tree) in enumerate(steps):
        logits_NV = logits_of(len(tree), seed)
        found = kept.apply(logits_NV, output, tree)
        for row, path in enumerate(tree):
            [plain] = rules(prompt, **MIXED).apply(logits_NV[row : row + 1], output + path, [[]])
            assert torch.equal(found[row], plain)
        output = output + new
        if commits:
            kept.commit(new)


def test_nothing_to_do_is_seen() -> None:
    logits_NV = logits_of(2)
    assert not rules().active and rules().apply(logits_NV, OUTPUT, [[], [1]]) is logits_NV
    for params, _ in processors(3).values():
        assert rules(**params).active
    short = rules(min_tokens=3)
    assert short.apply(logits_NV, [1], [[], [2]])[:, EOS].tolist() == [float("-inf")] * 2
    assert short.apply(logits_NV, [1, 2], [[], [2]])[:, EOS].isneginf().tolist() == [True, False]
    short.commit([2])
    assert not short.active
    assert rules(bad_words=[[1, 2]]).apply(logits_NV, [3], [[], [4]]) is logits_NV
    half = logits_NV.bfloat16()
    assert rules(bad_words=[[1, 2]]).apply(half, [3], [[], [4]]) is half
    assert rules(bad_words=[[1, 2]]).apply(half, [1], [[], [4]]).dtype == torch.float32
    assert not LogitRules(SamplingParams(min_tokens=3), PROMPT, VOCAB_SIZE).active  # no EOS, nothing to ban


def test_a_prompt_with_ids_beyond_the_output_rows() -> None:
    logits_NV = logits_of(1)
    assert torch.equal(
        rules([9, 5000], repetition_penalty=2.0).apply(logits_NV, [], [[]]),
        rules([9], repetition_penalty=2.0).apply(logits_NV, [], [[]]),
    )


def test_a_bad_word_is_banned_in_both_spellings() -> None:
    class Spaced:
        """A tokenizer with another token for a word after a space."""

        def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
            assert not add_special_tokens
            return {"input_ids": {"cat": [1, 2], " cat": [3]}[text]}

    banned = LogitRules(SamplingParams(bad_words=["cat"]), [0], 9, Spaced(), [])
    found = banned.apply(torch.zeros(2, 9), [], [[], [1]])
    assert [row.isneginf().nonzero().flatten().tolist() for row in found] == [[3], [2, 3]]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"logit_bias": {VOCAB_SIZE: 1.0}}, "logit_bias: 260 is not a token; give ids below 260"),
        ({"bad_words": [[1, 999]]}, "bad_words: 999 is not a token; give ids below 260"),
        ({"regex": "a(b"}, "regex: cannot be compiled"),
    ],
    ids=str,
)
def test_what_the_model_does_not_have_is_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(SamplingError) as caught:
        rules(**params)
    assert str(caught.value).startswith(message)


def test_words_without_a_tokenizer_and_scores_of_another_shape_are_refused() -> None:
    with pytest.raises(SamplingError, match="bad_words: 'cat' needs a tokenizer"):
        LogitRules(SamplingParams(bad_words=["cat"]), [0], 9)
    for wrong in (lambda input_ids, scores: None, lambda input_ids, scores: scores[0]):
        with pytest.raises(SamplingError, match=r"logits_processors: function returned .*shape \(1, 260\)"):
            rules(logits_processors=[wrong]).apply(logits_of(1), [], [[]])


def test_the_grammar_is_firm_and_bans_give_way_to_it() -> None:
    def say_z(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torch.full_like(scores, -1.0).index_fill(1, torch.tensor(encode("z")), 9.0)

    [y], [n], [z] = encode("y"), encode("n"), encode("z")
    choice = dict(choice=["y", "n", "no"])
    assert (
        filtered_probs(rules(**choice, logits_processors=[say_z]).apply(logits_of(1), [], [[]]), SamplingParams())[0, z]
        == 0
    )
    kept = rules(**choice, bad_words=["y"], min_tokens=3).apply(logits_of(3), [], [[], [n], [y]])
    assert [row.isfinite().nonzero().flatten().tolist() for row in kept] == [[n], encode("o"), [EOS]]
    both = rules(**choice, bad_words=["y", "n"]).apply(logits_of(1), [], [[]])  # nothing else would be left
    assert both[0].isfinite().nonzero().flatten().tolist() == sorted([y, n])


# A whole loop: the trunk is a table from the last two tokens to logits, the drafts are right, wrong, or forced


def generate(params: SamplingParams, draft_of: Callable[[LogitRules, list[int], torch.Generator], Draft]) -> list[int]:
    table = torch.randn(64, VOCAB_SIZE, generator=torch.Generator().manual_seed(1)) * 3
    row_rules = LogitRules(params, PROMPT, VOCAB_SIZE, byte_tokenizer(), [EOS])
    generator = torch.Generator().manual_seed(0)
    output: list[int] = []
    while len(output) < params.max_tokens:
        draft = draft_of(row_rules, output, generator)
        prefixes = [draft.prefix(node) for node in range(-1, len(draft))]
        texts = [PROMPT + output + prefix for prefix in prefixes]
        logits_NV = table[[(text[-1] * 7 + text[-2]) % 64 for text in texts]]
        probs_NV = filtered_probs(row_rules.apply(logits_NV, output, prefixes), params)
        verify = (
            verify_greedy(draft, probs_NV.argmax(-1).tolist())
            if params.greedy
            else verify_sampled(draft, probs_NV, generator)
        )
        taken = [draft.token_ids[node] for node in verify.path] + [verify.next_token]
        if EOS in taken:
            return output + taken[: taken.index(EOS) + 1]
        output += taken
        row_rules.commit(taken)
    return output[: params.max_tokens]


def no_draft(row_rules: LogitRules, output: list[int], generator: torch.Generator) -> Draft:
    return Draft()


SETTINGS: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.3},
    "presence": {"presence_penalty": 0.5},
    "frequency": {"frequency_penalty": 0.7},
    "mixed": MIXED,
    "json": {"json_object": True, "frequency_penalty": 0.7, "bad_words": ["}"]},
    "regex": {
        "regex": "([a-c]{2}[0-9])*;",
        "repetition_penalty": 1.3,
        "bad_words": ["ab", "9"],
        "logit_bias": {26: -9.0},
    },
}


@pytest.mark.parametrize("name", SETTINGS)
def test_greedy_with_drafts_equals_greedy_without(name: str) -> None:
    params = SamplingParams(max_tokens=60, **SETTINGS[name])
    plain = generate(params, no_draft)
    num_drafted = 0

    def right_and_wrong(row_rules: LogitRules, output: list[int], generator: torch.Generator) -> Draft:
        nonlocal num_drafted
        draft = Draft.chain(row_rules.forced(3))
        node = -1
        for i, token_id in enumerate(plain[len(output) : len(output) + 4]):
            draft.add((token_id + 1) % VOCAB_SIZE, node)
            node = draft.add(token_id if i < len(output) % 5 else (token_id + 3) % VOCAB_SIZE, node)
        num_drafted += len(draft)
        return draft

    assert generate(params, right_and_wrong) == plain
    assert len(plain) > 15 and num_drafted > 2 * len(plain)
    assert plain != generate(SamplingParams(max_tokens=60), no_draft), "the rules did nothing"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_json_stays_json_under_wrong_and_forced_drafts(temperature: float) -> None:
    def wild(row_rules: LogitRules, output: list[int], generator: torch.Generator) -> Draft:
        tokens = torch.randint(VOCAB_SIZE, (3,), generator=generator).tolist()
        return Draft.chain(row_rules.forced(4) + tokens)

    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["left", "right"]}, "b": {"type": "array", "items": {"type": "integer"}}},
        "required": ["a", "b"],
        "additionalProperties": False,
        "x-guidance": {"whitespace_flexible": False},
    }
    num_finished = 0
    for seed in range(4):
        params = SamplingParams(
            max_tokens=80, temperature=temperature, json_schema=schema, frequency_penalty=0.5, logit_bias={seed: 1.0}
        )
        output = generate(params, wild)
        if output[-1] == EOS:
            num_finished += 1
            assert json.loads(byte_tokenizer().decode(output[:-1]))["a"] in ("left", "right")
    assert num_finished
