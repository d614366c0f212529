"""Greedy equality: with heads of any quality, at any depth and in any batch, the text is the trunk's own."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Completion
from tests.fixtures import EOS, FAMILIES, encode, random_heads, script_trunk, scripted_heads, scripted_parallel_heads
from tests.lossless.oracle import QUALITIES, assert_same_text, script_drafts

UNROLLED = {"unrolled": True, "num_depths": 3}
DISTINCT = {"unrolled": False, "num_modules": 3, "num_depths": 3}
MODES = {"unrolled": UNROLLED, "distinct": DISTINCT}
PARALLEL: dict[str, dict[str, Any]] = {  # read no tokens
    "layer": {"kind": "parallel"},
    "layer below": {"kind": "parallel", "hidden_source": "below", "own_output": True},
    "linear": {"kind": "parallel", "block": "linear", "final_norm": "trunk"},
    "medusa": {"kind": "medusa", "num_res_blocks": 2},
    "medusa below": {"kind": "medusa", "hidden_source": "below", "draft_ids": list(range(0, 256, 2))},
}
KINDS = MODES | PARALLEL
CASES = [
    (mode, depth, quality)
    for mode, max_depth in (("unrolled", 4), ("distinct", 3))
    for depth in range(1, max_depth + 1)
    for quality in sorted(QUALITIES)
    if quality != "random" or depth == 3
]
CASES += [
    (kind, depth, quality) for kind in PARALLEL for depth, quality in ((1, "wrong"), (2, "perfect"), (3, "mixed"))
]
CASES += [(kind, 3, quality) for kind in PARALLEL for quality in ("random", "wrong")]

generator = torch.Generator().manual_seed(7)
PROMPTS = [torch.randint(0, 256, (n,), generator=generator).tolist() for n in (30, 1, 3, 11)]
MAX_TOKENS = [34, 9, 4, 14]  # 64 tokens in the longest text: four sliding windows


@cache
def trunk_of(family: str) -> Trunk:
    return Trunk(FAMILIES[family]())


@cache
def plain_texts(family: str) -> list[Completion]:
    return generate(family, None, depth=0, max_batch=1)


def generate(family: str, heads: Any, depth: int, max_batch: int, **params: Any) -> list[Completion]:
    each = [SamplingParams(max_tokens=n, ignore_eos=True, **params) for n in MAX_TOKENS]
    return Engine(MTPModel(trunk_of(family), heads), max_batch).generate(PROMPTS, each, depth=depth)


def assert_texts_are_plain(family: str, got: list[Completion]) -> None:
    for expected, completion in zip(plain_texts(family), got, strict=True):
        prompt = expected.prompt_token_ids
        assert_same_text(trunk_of(family), prompt, expected.token_ids, completion.token_ids)
        if completion.token_ids == expected.token_ids:
            assert completion.finish_reason == expected.finish_reason


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_depth_0_is_the_text_of_transformers(family: str) -> None:
    model = FAMILIES[family]()  # its own attention, masks and cache
    model.generation_config.eos_token_id = None
    for plain, num_tokens in zip(plain_texts(family), MAX_TOKENS, strict=True):
        prompt = plain.prompt_token_ids
        ids = model.generate(torch.tensor([prompt]), max_new_tokens=num_tokens, do_sample=False, pad_token_id=257)
        assert_same_text(trunk_of(family), prompt, ids[0, len(prompt) :].tolist(), plain.token_ids)
        assert len(plain.token_ids) == num_tokens


@pytest.mark.parametrize(("mode", "depth", "quality"), CASES)
def test_every_quality_and_depth(monkeypatch: pytest.MonkeyPatch, mode: str, depth: int, quality: str) -> None:
    """Alone and in a batch of prompts of different length; accepted counts do not depend on the neighbours."""
    script_drafts(monkeypatch, plain_texts("llama"), quality)
    heads = random_heads(trunk_of("llama"), **KINDS[mode])
    alone, together = (generate("llama", heads, depth, max_batch) for max_batch in (1, 4))
    for single, batched, plain in zip(alone, together, plain_texts("llama"), strict=True):
        assert single.token_ids == batched.token_ids == plain.token_ids
        assert single.stats == batched.stats
        assert single.num_rounds == batched.num_rounds
        assert single.origins == batched.origins
    counts = [completion.stats for completion in together]
    if quality == "perfect":
        assert all(c.num_accepted_tokens == c.num_draft_tokens > 0 for c in counts)
    if quality == "wrong":
        assert all(c.num_accepted_tokens == 0 < c.num_draft_tokens for c in counts)
    if quality == "mixed":
        assert 0 < sum(c.num_accepted_tokens for c in counts) < sum(c.num_draft_tokens for c in counts)


@pytest.mark.parametrize("quality", ["random", "mixed"])
@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"llama"}))
def test_every_family(monkeypatch: pytest.MonkeyPatch, family: str, mode: str, quality: str) -> None:
    script_drafts(monkeypatch, plain_texts(family), quality)
    heads = random_heads(trunk_of(family), **MODES[mode])
    for max_batch, depth in ((4, 3), (2, 2)) if quality == "mixed" else ((4, 3),):
        got = generate(family, heads, depth, max_batch)
        assert_texts_are_plain(family, got)
        if quality == "mixed":
            assert sum(completion.stats.num_accepted_tokens for completion in got) > 20


@pytest.mark.parametrize("kind", ["layer below", "medusa"])
@pytest.mark.parametrize("family", ["mistral", "gemma2", "glm4_moe", "deepseek_v3"])
def test_families_with_heads_that_read_no_tokens(monkeypatch: pytest.MonkeyPatch, family: str, kind: str) -> None:
    heads = random_heads(trunk_of(family), **PARALLEL[kind])
    for quality in ("random", "mixed"):
        script_drafts(monkeypatch, plain_texts(family), quality)
        got = generate(family, heads, depth=3, max_batch=4)
        assert_texts_are_plain(family, got)
    assert sum(completion.stats.num_accepted_tokens for completion in got) > 20


@pytest.mark.parametrize(
    "conventions",
    [
        {"hidden_source": "pre", "concat": "hidden_first", "feedback": "raw"},
        {"own_output": True},
        {"final_norm": "trunk"},
        {"draft_ids": list(range(0, 256, 2))},
    ],
    ids=lambda conventions: next(iter(conventions)),
)
@pytest.mark.parametrize("mode", sorted(MODES))
def test_every_convention(monkeypatch: pytest.MonkeyPatch, mode: str, conventions: dict[str, Any]) -> None:
    heads = random_heads(trunk_of("llama"), **MODES[mode], **conventions)
    for quality in ("random", "mixed"):
        script_drafts(monkeypatch, plain_texts("llama"), quality)
        assert_texts_are_plain("llama", generate("llama", heads, depth=3, max_batch=4))


def test_a_reduced_draft_vocabulary_drafts_nothing_else() -> None:
    trunk, ids = trunk_of("llama"), [5, 7, 250]
    heads = random_heads(trunk, draft_ids=ids)
    drafted: list[int] = []
    choose = heads.to_token_ids
    heads.to_token_ids = lambda draft_ids: (drafted.extend(choose(draft_ids).tolist()), choose(draft_ids))[1]  # type: ignore[method-assign]
    assert_texts_are_plain("llama", generate("llama", heads, depth=3, max_batch=4))
    assert drafted and set(drafted) <= set(ids)


@pytest.mark.parametrize("mode", ["unrolled", "layer", "medusa"])
def test_greedy_draws_no_random_number(mode: str) -> None:
    """Other seeds, same text and same accepted counts."""
    heads = random_heads(trunk_of("llama"), **KINDS[mode])
    first, second = (generate("llama", heads, depth=3, max_batch=4, seed=seed) for seed in (1, 2))
    assert first == second


@pytest.mark.parametrize("mode", ["distinct", "layer", "medusa"])
def test_texts_that_hit_eos_leave_the_others_alone(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Rows end in different rounds, others join in their slots."""
    plain = plain_texts("llama")
    ends = [plain[0].token_ids[3], plain[3].token_ids[11]]  # tokens that the texts do contain, declared to be EOS
    trunk = Trunk(FAMILIES["llama"]())
    trunk.model.generation_config.eos_token_id = ends
    model = MTPModel(trunk, random_heads(trunk, **KINDS[mode]))
    prompts = PROMPTS * 3
    each = [SamplingParams(max_tokens=n) for n in MAX_TOKENS[::-1] + MAX_TOKENS + MAX_TOKENS]
    expected = Engine(model).generate(prompts, each)
    assert {text.finish_reason for text in expected} == {"stop", "length"}
    script_drafts(monkeypatch, plain, "mixed")
    single = Engine(model).generate(prompts, each, depth=3)
    for max_batch in (3, 5, 12):
        got = Engine(model, max_batch).generate(prompts, each, depth=3)
        assert [text.token_ids for text in got] == [text.token_ids for text in expected]
        assert [text.stats for text in got] == [text.stats for text in single]


KNOWN = [(mode, kind) for mode in sorted(MODES) for kind in ("perfect", "wrong", "mixed")]
KNOWN += [(mode, kind) for mode in ("layer", "layer below", "linear", "medusa") for kind in ("perfect", "wrong")]


@pytest.mark.parametrize(("mode", "kind"), KNOWN)
def test_real_heads_on_a_known_text(mode: str, kind: Any) -> None:
    """The ABC chain entered at five places; the heads are right or wrong by themselves."""
    trunk = script_trunk(">abcdefghijklmnopqrstuvwxyz<eos>")
    if mode in PARALLEL:
        heads = scripted_parallel_heads(trunk, kind, **PARALLEL[mode] | {"own_output": True})
    else:
        heads = scripted_heads(trunk, kind, wrong_after=encode("cdjrstx"), **MODES[mode])
    prompts = [encode("0" * n + start) for n, start in enumerate(">bksy")]
    texts = ["abcdefghijklmnopqrstuvwxyz", "cdefghijklmnopqrstuvwxyz", "lmnopqrstuvwxyz", "tuvwxyz", "z"]
    model = MTPModel(trunk, heads)
    params = SamplingParams(max_tokens=40)
    for depth in (1, 3):
        single = Engine(model).generate(prompts, params, depth=depth)
        got = Engine(model, 5).generate(prompts, params, depth=depth)
        assert [text.token_ids for text in got] == [encode(text + "<eos>") for text in texts]
        assert [text.text for text in got] == texts
        assert got == single
        rates = [text.stats.acceptance_rate for text in got if text.stats.num_drafts]
        if kind == "wrong":
            assert rates == [0.0] * len(rates)
        if kind == "perfect":
            rounds = [-(-len(text) // (depth + 1)) + 1 for text in texts]  # the first token comes from the prompt
            assert [text.num_rounds for text in got] == rounds


def test_the_excuse_is_narrow() -> None:
    """The helper of this file fails where it should."""
    trunk, [text, *_] = trunk_of("llama"), plain_texts("llama")
    assert_same_text(trunk, text.prompt_token_ids, text.token_ids, text.token_ids)
    other = [*text.token_ids[:5], (text.token_ids[5] + 1) % EOS, *text.token_ids[6:]]
    with pytest.raises(AssertionError, match="token 5 is"):
        assert_same_text(trunk, text.prompt_token_ids, text.token_ids, other)
    with pytest.raises(AssertionError, match="one text is a part of the other"):
        assert_same_text(trunk, text.prompt_token_ids, text.token_ids, text.token_ids[:-1])
