"""Prompts in every form, and one clear line for anything else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.errors import ContextLengthError, UsageError
from foretell.models.chat import text_token_ids
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from tests.fixtures import byte_tokenizer, encode, tiny_llama

ONE = SamplingParams(max_tokens=2)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(MTPModel(Trunk(tiny_llama(), byte_tokenizer())))


def test_ids_may_come_as_list_tuple_or_tensor(engine: Engine) -> None:
    ids = [5, 6, 7]
    outputs = [engine.generate([prompt], ONE)[0] for prompt in (ids, tuple(ids), torch.tensor(ids))]
    assert {tuple(done.token_ids) for done in outputs} == {tuple(outputs[0].token_ids)}
    assert all(done.prompt_token_ids == ids for done in outputs)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ("hello", "list of prompts"),
        ([1, 2, 3], "prompt 0 is 1"),
        ([[1, "a"]], "prompt 0 is a list with 'a' in it; "),
        ([[1, 2.5]], "prompt 0: "),
        ([[]], "prompt 0 is empty"),
        ([[999]], "outside the vocabulary of 260"),
        ([{"role": "user", "content": "hi"}], "prompt 0 is {"),
        ([[{"role": "user", "content": "hi"}]], "no chat template"),
    ],
)
def test_anything_else_is_one_clear_line(engine: Engine, prompts: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        engine.generate(prompts, ONE)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("params", [{"max_tokens": 3}, [ONE, ONE], [None], 3])
def test_wrong_params_are_refused(engine: Engine, params: object) -> None:
    with pytest.raises(UsageError, match="SamplingParams|sampling parameters"):
        engine.generate([[5]], params)  # type: ignore[arg-type]


@pytest.mark.parametrize("max_batch", [0, -1, 1.5, True])
def test_wrong_max_batch_is_refused(engine: Engine, max_batch: object) -> None:
    with pytest.raises(UsageError, match="max_batch"):
        Engine(engine.model, max_batch=max_batch)  # type: ignore[arg-type]


def test_a_text_far_too_long_is_not_read_to_its_end() -> None:
    class Counting:
        def __init__(self) -> None:
            self.num_characters = 0
            self.tokenizer = byte_tokenizer()

        def __call__(self, text: str, **options: object) -> object:
            self.num_characters += len(text)
            return self.tokenizer(text, **options)

    counting = Counting()
    with pytest.raises(
        ContextLengthError, match="^it has at least 1824 tokens and the window holds 100, .* at most 99"
    ):
        text_token_ids(counting, "x" * 10**6, "it", most=100)
    assert counting.num_characters == 1824
    assert text_token_ids(counting, "x" * 10**4, "it") == encode("x" * 10**4)
    for size in (164, 1824):  # up to the first cut a text is read whole, however long
        assert len(text_token_ids(counting, "x" * size, "it", most=100)) == size
    with pytest.raises(ContextLengthError, match="at least 1824 tokens"):
        text_token_ids(counting, "x" * 1825, "it", most=100)

    def long_tokens(size: int) -> Callable[..., object]:
        return lambda text, **options: {"input_ids": [0] * (len(text) // size)}

    assert len(text_token_ids(long_tokens(40), "x" * 6_500, "it", most=100)) == 162  # within the edge: all of them
    assert len(text_token_ids(long_tokens(12), "x" * 6_500, "it", most=100)) == 541  # the first cut is within it
    with pytest.raises(ContextLengthError, match=f"at least {4 * 1824 // 40} tokens"):  # the second cut
        text_token_ids(long_tokens(40), "x" * 10**6, "it", most=100)
