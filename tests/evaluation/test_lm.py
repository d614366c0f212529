"""ForetellLM against lm-eval's own hf model on the same weights, and its own errors."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM

from foretell.errors import UsageError
from foretell.evaluation.lm import ForetellLM
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from tests import fixtures
from tests.evaluation.lm_requests import instances

CONTEXT = 96
TURNS = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
CHAT = TURNS + "{% if add_generation_prompt %}A:{% endif %}"
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHAT
PAIRS = [
    ("The cat", " sat"),
    ("", "Hello"),  # nothing before it: EOS stands there
    ("a" * 200, "bcd"),  # longer than the context
    ("abc ", "x"),  # the space goes to the continuation
    ("q", "wertyuiop" * 4),
    ("The cat", " sat on it"),
    ("b" * CONTEXT, "c"),
]
TEXTS = ["", "abc", "x" * 95, "y" * 96, "z" * 97, "The quick brown fox. " * 16]
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("The cat", {"until": ["\x1e\x0c"], "max_gen_toks": 30}),
    ("hello there", {"until": [], "max_gen_toks": 40}),
    ("start" + "b" * 150 + "end", {"until": ["zz"], "max_gen_toks": 20}),
    ("A", {"until": "vf", "max_gen_toks": 40, "temperature": 0.0, "do_sample": False}),
    ("The cat", {"until": ["\x0c", "\x1e\x1e"], "max_gen_toks": 30}),
]


def loaded(model: Any, tokenizer: Any = None) -> tuple[HFLM, MTPModel]:
    """The same weights in lm-eval's model and in ours, with heads that guess at random."""
    tokenizer = tokenizer or fixtures.byte_tokenizer(CHAT)
    hf = HFLM(pretrained=copy.deepcopy(model), tokenizer=copy.deepcopy(tokenizer), batch_size=3)
    trunk = Trunk(model, tokenizer, name="tiny")
    return hf, MTPModel(trunk, fixtures.random_heads(trunk))


@pytest.fixture(scope="module")
def tiny() -> tuple[HFLM, MTPModel]:
    return loaded(fixtures.tiny_llama(max_position_embeddings=CONTEXT))


@pytest.mark.parametrize("batch_size", [1, 4])
def test_loglikelihoods_are_those_of_hf(tiny: tuple[HFLM, MTPModel], batch_size: int) -> None:
    hf, model = tiny
    ours = ForetellLM(model, batch_size=batch_size)
    expected, got = (lm.loglikelihood(instances("loglikelihood", *PAIRS)) for lm in (hf, ours))
    assert [a for a, _ in got] == pytest.approx([a for a, _ in expected], abs=1e-4)
    assert [b for _, b in got] == [b for _, b in expected]
    assert ours.num_truncated == 1


def test_greedy_continuations_are_told_from_others() -> None:
    trunk = fixtures.script_trunk("abcdef")
    model = copy.deepcopy(trunk.model)
    model.set_attn_implementation("eager")
    pairs = [("a", "bcd"), ("a", "bcf"), ("a", "b"), ("a", "ccd"), ("ab", "cd")]
    for lm in (HFLM(pretrained=model, tokenizer=fixtures.byte_tokenizer()), ForetellLM(MTPModel(trunk), batch_size=5)):
        assert [greedy for _, greedy in lm.loglikelihood(instances("loglikelihood", *pairs))] == [
            True,
            False,
            True,
            False,
            True,
        ]


def test_rolling_loglikelihoods_are_those_of_hf(tiny: tuple[HFLM, MTPModel]) -> None:
    hf, model = tiny
    asked = instances("loglikelihood_rolling", *[(text,) for text in TEXTS])
    expected, got = (lm.loglikelihood_rolling(asked) for lm in (hf, ForetellLM(model, batch_size=4)))
    assert got == pytest.approx(expected, abs=1e-3)  # sums over up to 336 tokens
    assert got[0] == 0.0


@pytest.mark.parametrize("depth", [0, 3, "auto"])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_texts_are_those_of_hf_at_every_depth(tiny: tuple[HFLM, MTPModel], depth: Any, batch_size: int) -> None:
    hf, model = tiny
    ours = ForetellLM(model, depth=depth, batch_size=batch_size)
    expected, got = (lm.generate_until(instances("generate_until", *ASKED)) for lm in (hf, ours))
    assert got == expected
    assert 0 < len(got[0]) < 30 and "\x0c" not in got[4]  # the stop strings did end them
    [spent] = ours.speculation.values()
    assert (len(spent.outputs), bool(spent.stats.num_drafts)) == (len(ASKED), depth == 3 or spent.stats.num_drafts > 0)
    assert ours.num_truncated == 1 and fixtures.encode(ASKED[2][0])[-(CONTEXT - 20) :] in spent.prompts


def test_what_speculation_did_is_kept_by_task() -> None:
    trunk = fixtures.script_trunk("abcdefghijklmnopqrstuvwxyza", max_positions=300)
    lm = ForetellLM(MTPModel(trunk, fixtures.scripted_heads(trunk, "perfect")), depth=3)
    asked = [*instances("generate_until", ("a", {"max_gen_toks": 9}), task="one")]
    asked += instances("generate_until", ("k", {"max_gen_toks": 5, "until": ["n"]}), task="two")
    assert lm.generate_until(asked[::-1]) == ["lm", "bcdefghij"]
    one, two = lm.speculation["one"].as_dict(), lm.speculation["two"].as_dict()
    assert (one["num_requests"], one["num_tokens"], one["mean_acceptance_length"]) == (1, 9, 4.0)
    assert (two["num_tokens"], two["name"]) == (3, "two")
    assert one["tokens_per_s"] == pytest.approx(9 / one["elapsed_s"])


@pytest.mark.parametrize("depth", [0, 3])
def test_eos_ends_a_text(depth: int) -> None:
    trunk = fixtures.script_trunk("abcdef<eos>gh")
    model = copy.deepcopy(trunk.model)
    model.set_attn_implementation("eager")
    hf = HFLM(pretrained=model, tokenizer=fixtures.byte_tokenizer())
    ours = ForetellLM(MTPModel(trunk, fixtures.scripted_heads(trunk, "perfect")), depth=depth)
    asked = instances("generate_until", ("ab", {"until": []}), ("ab", {"until": ["e"]}))
    hf_asked = instances(
        "generate_until", ("ab", {"until": [], "max_gen_toks": 20}), ("ab", {"until": ["e"], "max_gen_toks": 20})
    )
    assert hf.generate_until(hf_asked) == ["cdef", "cd"]
    with pytest.raises(UsageError, match=r"task t: it asks for 256 tokens, and the context holds 64"):
        ours.generate_until(asked)
    assert ours.generate_until(hf_asked) == ["cdef", "cd"]
    ignoring = instances("generate_until", ("ab", {"max_gen_toks": 6, "ignore_eos": True}))
    assert ours.generate_until(ignoring) == ["cdefg"] and ours.speculation["t"].eos_ignored  # EOS itself has no text


@pytest.mark.parametrize("depth", [0, 3])
def test_the_tokenizers_eos_ends_a_text_where_the_models_is_another(depth: int) -> None:
    trunk = fixtures.script_trunk("abcdef<eos>gh")
    trunk.model.generation_config.eos_token_id = trunk.config.eos_token_id = fixtures.PAD
    lm = ForetellLM(MTPModel(trunk, fixtures.scripted_heads(trunk, "perfect")), depth=depth)
    asked = instances("generate_until", ("a", {"max_gen_toks": 9}), ("a", {"max_gen_toks": 9, "until": ["e", "d"]}))
    assert lm.generate_until(asked) == ["bcdef", "bc"]


def test_sampling_follows_the_seed(tiny: tuple[HFLM, MTPModel]) -> None:
    """Each request has a seed of its own, the same in every run."""
    sampled = ("A", {"do_sample": True, "temperature": 1.5, "max_gen_toks": 12})
    texts = [
        ForetellLM(tiny[1], seed=s).generate_until(instances("generate_until", sampled, sampled)) for s in (0, 0, 5)
    ]
    assert texts[0] == texts[1] and texts[0][0] != texts[0][1] and texts[0] != texts[2]


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"num_beams": 4}, "num_beams=4 is not allowed"),
        ({"max_length": 20}, "max_length=20"),
        ({"do_sample": True, "temperature": -1.0}, "temperature: -1.0 is not allowed"),
        ({"do_sample": True, "temperature": "hot"}, "cannot be read"),
        ({"max_gen_toks": 0}, "max_tokens: 0 is not allowed"),
        ({"until": [3]}, r"until=\[3\]"),
        ({"top_p": 0.0}, "top_p: 0.0"),
    ],
)
def test_what_a_task_may_not_ask_for(tiny: tuple[HFLM, MTPModel], kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=f"^task t: .*{words}"):
        ForetellLM(tiny[1]).generate_until(instances("generate_until", ("A", {"max_gen_toks": 4, **kwargs})))


def test_idle_options_of_transformers_are_taken(tiny: tuple[HFLM, MTPModel]) -> None:
    kwargs = {"max_gen_toks": 4, "num_beams": 1, "use_cache": True, "until": [""]}
    assert len(ForetellLM(tiny[1]).generate_until(instances("generate_until", ("A", kwargs)))) == 1


def test_chat_template(tiny: tuple[HFLM, MTPModel]) -> None:
    hf, model = tiny
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]
    lm = ForetellLM(model)
    assert lm.apply_chat_template(chat) == hf.apply_chat_template(chat) == "system: s\nuser: hi\nA:"
    assert lm.chat_template(True) == CHAT and lm.tokenizer_name
    model.trunk.tokenizer.chat_template = NO_SYSTEM
    try:
        assert lm.apply_chat_template(chat) == "user: hi\nA:" and "left out" in min(lm.notes)
        model.trunk.tokenizer.chat_template = None
        with pytest.raises(UsageError, match="no chat template"):
            lm.apply_chat_template(chat)
    finally:
        model.trunk.tokenizer.chat_template = CHAT


def test_it_is_registered_and_loads_by_name(tmp_path: Any) -> None:
    trunk = Trunk(fixtures.tiny_llama(), fixtures.byte_tokenizer(), name="saved")
    trunk.model.save_pretrained(tmp_path)
    trunk.tokenizer.save_pretrained(tmp_path)
    lm = get_model("foretell").create_from_arg_string(f"pretrained={tmp_path},dtype=float32", {"batch_size": 2})
    assert isinstance(lm, ForetellLM) and (lm.batch_size, lm.depth, lm.trunk.dtype) == (2, 0, torch.float32)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size 0"),
        ({"batch_size": "auto"}, "batch_size 'auto'"),
        ({"depth": -1}, "depth -1"),
        ({"max_length": 97}, "from 2 to 96"),
        ({"max_length": True}, "from 2 to 96"),
    ],
)
def test_wrong_options(tiny: tuple[HFLM, MTPModel], options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ForetellLM(tiny[1], **options)


def test_nothing_to_score(tiny: tuple[HFLM, MTPModel]) -> None:
    with pytest.raises(UsageError, match="task t: a continuation is empty"):
        ForetellLM(tiny[1]).loglikelihood(instances("loglikelihood", ("A", "")))
    with pytest.raises(UsageError, match="no tokenizer"):
        ForetellLM(MTPModel(Trunk(fixtures.tiny_llama(), None, name="bare")))
