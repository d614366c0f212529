"""The law of the output is the trunk's: exactly by enumeration, then once by statistics from end to end."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding import verify
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.decoding.sampling import filtered_probs
from foretell.decoding.verify import verify_sampled
from foretell.errors import SamplingError
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Draft, Verdict
from tests.fixtures import dist_heads, dist_trunk, encode, random_heads, script_trunk, tiny_llama

TINY = 1e-12
SETTINGS = {
    "T=1": SamplingParams(temperature=1.0),
    "T=0.5": SamplingParams(temperature=0.5),
    "top_k=3": SamplingParams(temperature=1.0, top_k=3),
    "top_p=0.85": SamplingParams(temperature=1.0, top_p=0.85),
    "min_p=0.2": SamplingParams(temperature=1.0, min_p=0.2),
    "all": SamplingParams(temperature=0.7, top_k=3, top_p=0.9, min_p=0.1),
}

# Exact: one round is run for every draft and every outcome; its random numbers are replaced, their law is known.


class Round:
    """One call of verify_sampled with given uniform numbers; remembers the law from which the last token is drawn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._uniforms = iter(())
        self.drawn_from = torch.empty(0)
        monkeypatch.setattr(
            verify.torch, "rand", lambda *_, **__: torch.tensor(next(self._uniforms), dtype=torch.float64)
        )
        monkeypatch.setattr(verify, "draw", self._draw)

    def _draw(self, probs_V: torch.Tensor, generator: torch.Generator) -> int:
        self.drawn_from = probs_V / probs_V.sum()
        return -1

    def __call__(self, draft: Draft, logits_NV: torch.Tensor, params: SamplingParams, u: Sequence[float]) -> Verdict:
        self._uniforms = iter(u)
        return verify_sampled(draft, filtered_probs(logits_NV, params), torch.Generator())

    def accept_probability(self, draft: Draft, logits_NV: torch.Tensor, params: SamplingParams, position: int) -> float:
        """The largest u that accepts the token at ``position``, by bisection, where those before it are accepted."""

        def accepted(u: float) -> bool:
            uniforms = [0.0] * position + [u] + [0.0] * len(draft.token_ids)
            return self(draft, logits_NV, params, uniforms).num_accepted > position

        low, high = 0.0, math.nextafter(1.0, 0.0)
        if accepted(high):
            return 1.0
        if not accepted(low):
            return 0.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if accepted(middle) else (low, middle)
        return low


def random_laws(num: int, seed: int) -> torch.Tensor:
    return torch.rand(num, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(-1)


PAIRS = {
    "near": ([0.50, 0.30, 0.15, 0.05], [0.40, 0.10, 0.30, 0.20]),
    "equal": ([0.50, 0.30, 0.15, 0.05], [0.50, 0.30, 0.15, 0.05]),
    "p has zeros": ([0.60, 0.40, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]),
    "q has zeros": ([0.25, 0.25, 0.25, 0.25], [0.0, 0.9, 0.1, 0.0]),
    "apart": ([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.7, 0.3]),
    "point": ([0.1, 0.2, 0.3, 0.4], [0.0, 1.0, 0.0, 0.0]),
    "certain": ([0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 1.0, 0.0]),
    "certain and impossible": ([0.5, 0.3, 0.2, 0.0], [0.0, 0.0, 0.0, 1.0]),
    "certain and right": ([0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]),
    "reversed": ([0.05, 0.15, 0.30, 0.50], [0.50, 0.30, 0.15, 0.05]),
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("pair", PAIRS)
def test_one_drafted_token_keeps_the_law(monkeypatch: pytest.MonkeyPatch, pair: str, setting: str) -> None:
    params = SETTINGS[setting]
    p_raw, q_raw = (torch.tensor(values, dtype=torch.float64) for values in PAIRS[pair])
    logits_NV = torch.stack([p_raw, random_laws(1, 0)[0]]).log()
    run = Round(monkeypatch)
    p = filtered_probs(logits_NV, params)[0]
    q = filtered_probs(q_raw.log().unsqueeze(0), params)[0]
    law = torch.zeros(4, dtype=torch.float64)
    for token in range(4):
        draft = Draft([token], [-1], [None if pair.startswith("certain") else q])  # look-up gives no distribution
        if q[token] == 0:
            continue
        accept = run.accept_probability(draft, logits_NV, params, 0)
        law[token] += q[token] * accept
        if accept < 1:
            assert run(draft, logits_NV, params, [math.nextafter(1.0, 0.0)]).num_accepted == 0
            law += q[token] * (1 - accept) * run.drawn_from
        if p[token] == 0:
            assert accept == 0
    torch.testing.assert_close(law, p, rtol=0, atol=TINY)


@pytest.mark.parametrize("certain", [False, True])
@pytest.mark.parametrize("setting", ["T=1", "all"])
def test_two_drafted_tokens_keep_the_joint_law(monkeypatch: pytest.MonkeyPatch, setting: str, certain: bool) -> None:
    """p and q of the second token depend on the first; a third comes as a bonus. ``certain``: q is 1 at one token."""
    params = SETTINGS[setting]
    p_logits, q_logits = random_laws(1 + 4 + 16, 1).log() * 3, random_laws(1 + 4, 2).log() * 3
    p, q = (
        filtered_probs(p_logits, params),
        filtered_probs(q_logits, replace(params, temperature=0.0) if certain else params),
    )
    run = Round(monkeypatch)
    first = torch.zeros(4, dtype=torch.float64)
    second = torch.zeros(4, 4, dtype=torch.float64)  # [first, second], where the round reached the second
    third = torch.zeros(4, 4, 4, dtype=torch.float64)
    reached_second, reached_third = torch.zeros(4, dtype=torch.float64), torch.zeros(4, 4, dtype=torch.float64)
    for a, b in itertools.product(range(4), range(4)):
        mass = float(q[0, a] * q[1 + a, b])
        if mass == 0:
            continue
        draft = Draft([a, b], [-1, 0], [None, None] if certain else [q[0], q[1 + a]])
        logits_NV = torch.stack([p_logits[0], p_logits[1 + a], p_logits[5 + 4 * a + b]])
        take_a, take_b = (run.accept_probability(draft, logits_NV, params, k) for k in (0, 1))
        top = math.nextafter(1.0, 0.0)
        if take_a < 1:
            assert run(draft, logits_NV, params, [top]) == Verdict([], -1, False)
            first += mass * (1 - take_a) * run.drawn_from
        first[a] += mass * take_a
        reached_second[a] += mass * take_a
        if take_a and take_b < 1:
            assert run(draft, logits_NV, params, [0.0, top]) == Verdict([0], -1, False)
            second[a] += mass * take_a * (1 - take_b) * run.drawn_from
        second[a, b] += mass * take_a * take_b
        if take_a and take_b:
            assert run(draft, logits_NV, params, [0.0, 0.0]) == Verdict([0, 1], -1, True)
            third[a, b] += mass * take_a * take_b * run.drawn_from
            reached_third[a, b] += mass * take_a * take_b
    torch.testing.assert_close(first, p[0], rtol=0, atol=TINY)
    torch.testing.assert_close(second, reached_second.unsqueeze(1) * p[1:5], rtol=0, atol=TINY)
    torch.testing.assert_close(third, reached_third.unsqueeze(2) * p[5:].view(4, 4, 4), rtol=0, atol=TINY)


# From end to end, on a trunk whose next token always has the same law

TOKENS = encode("abcd")
P = dict(zip(TOKENS, (0.50, 0.30, 0.15, 0.05), strict=True))
Q = dict(zip(TOKENS, (0.40, 0.10, 0.30, 0.20), strict=True))


@pytest.fixture(scope="module")
def dist_model() -> MTPModel:
    trunk = dist_trunk(P)
    return MTPModel(trunk, dist_heads(trunk, Q))


def sample(model: MTPModel, num: int, depth: int, **params: Any) -> list[list[int]]:
    each = [SamplingParams(seed=seed, **{"max_tokens": 4, "temperature": 1.0} | params) for seed in range(num)]
    done = Engine(model, max_batch=250).generate([[TOKENS[0]]] * num, each, depth=depth)
    return [completion.token_ids for completion in done]


def total_variation(texts: list[list[int]], law: Sequence[float]) -> tuple[float, float]:
    """Of tokens 2 to 4 (the first is never drafted), and the limit for their number: 0.02 for 20,000."""
    tokens = [token for text in texts for token in text[1:4]]
    assert len(tokens) == 3 * len(texts)
    shares = [tokens.count(token) / len(tokens) for token in TOKENS]
    assert sum(shares) == pytest.approx(1)
    return sum(abs(s - p) for s, p in zip(shares, law, strict=True)) / 2, 0.02 * math.sqrt(20_000 / len(tokens))


KINDS: dict[str, dict[str, Any]] = {
    "sequential": {},
    "parallel": {"kind": "parallel", "hidden_source": "below"},
    "medusa": {"kind": "medusa"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_law_and_independence_from_end_to_end(kind: str) -> None:
    trunk = dist_trunk(P)
    num_texts = 4000 if kind == "sequential" else 2000
    texts = sample(MTPModel(trunk, dist_heads(trunk, Q, **KINDS[kind])), num_texts, depth=3)
    distance, limit = total_variation(texts, list(P.values()))
    assert distance < limit
    for k in (2, 3):  # what follows a token does not depend on it: pairs have the product law
        pairs = [(text[k - 1], text[k]) for text in texts]
        shares = {pair: pairs.count(pair) / len(pairs) for pair in itertools.product(TOKENS, TOKENS)}
        assert sum(abs(share - P[a] * P[b]) for (a, b), share in shares.items()) / 2 < 0.06 * math.sqrt(
            4000 / num_texts
        )


DRAFTERS = ("ngram", "model", "ngram+heads", "ngram+model")


def with_drafter(model: MTPModel, kind: Any, max_batch: int = 250) -> Engine:
    """The draft model's law is Q, as that of the heads is. In a stack, look-up wants three tokens: it finds some."""
    draft_model = MTPModel(dist_trunk(Q)) if "model" in kind else None
    return Engine(model, max_batch, DrafterConfig(kind, draft_model, min_n=3 if "+" in kind else 1))


@pytest.mark.parametrize("kind", DRAFTERS)
def test_law_with_other_drafters(dist_model: MTPModel, kind: str) -> None:
    """Look-up guesses from the text itself, so a draft depends on what was sampled before it: the tokens must not."""
    num_texts, num_tokens = 1000, 9
    each = [SamplingParams(max_tokens=num_tokens, temperature=1.0, seed=seed) for seed in range(num_texts)]
    prompt = encode("abcdabdacbd")
    done = with_drafter(dist_model, kind).generate([prompt] * num_texts, each, depth=3)
    texts = [completion.token_ids for completion in done]
    pairs = [pair for text in texts for pair in itertools.pairwise(text[1:])]
    shares = {pair: pairs.count(pair) / len(pairs) for pair in itertools.product(TOKENS, TOKENS)}
    assert sum(abs(share - P[a] * P[b]) for (a, b), share in shares.items()) / 2 < 0.03
    for k in range(1, num_tokens):
        assert sum(abs([text[k] for text in texts].count(t) / num_texts - p) for t, p in P.items()) / 2 < 0.06
    stats = [completion.stats for completion in done]
    assert 0.05 < sum(s.num_accepted_tokens for s in stats) / sum(s.num_draft_tokens for s in stats) < 0.8


@pytest.mark.parametrize("kind", DRAFTERS)
def test_seeds_with_other_drafters(dist_model: MTPModel, kind: str) -> None:
    """A sampled text does not depend on its neighbours, nor on torch's own generator, which is left alone."""
    prompts = [encode(text) for text in ("abcab", "d", "cadbcad", "bb")]
    each = [SamplingParams(max_tokens=30, temperature=t, seed=i) for i, t in enumerate((1.0, 0.7, 0.0, 1.3))]
    engine = with_drafter(dist_model, kind, 4)
    before = torch.get_rng_state()
    together = engine.generate(prompts, each, depth=3)
    assert torch.equal(torch.get_rng_state(), before)
    for prompt, params, done in zip(prompts, each, together, strict=True):
        [alone] = with_drafter(dist_model, kind, 1).generate([prompt], params, depth=3)
        assert done == alone
    assert together[0].stats.num_accepted_tokens > 0


@pytest.mark.parametrize(
    ("params", "law"),
    [
        ({"temperature": 0.5}, (0.685, 0.247, 0.062, 0.007)),
        ({"top_p": 0.85}, (0.526, 0.316, 0.158, 0)),
        ({"top_k": 3, "top_p": 0.83}, (0.625, 0.375, 0, 0)),  # on the re-normalised three; three survive otherwise
        ({"min_p": 0.2}, (0.526, 0.316, 0.158, 0)),
        ({"top_k": 1000}, (0.5, 0.3, 0.15, 0.05)),
    ],
    ids=str,
)
def test_settings_hold_with_and_without_drafts(dist_model: MTPModel, params: dict[str, Any], law: list[float]) -> None:
    for depth in (0, 3):
        texts = sample(dist_model, 500, depth, **params)
        distance, limit = total_variation(texts, law)
        assert distance < limit
        assert {token for text in texts for token in text} <= {t for t, p in zip(TOKENS, law, strict=True) if p}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_heads_with_the_trunks_law_are_always_right(setting: str, kind: str) -> None:
    """The draft is drawn with the request's own settings: anything else is lossless too, but costs acceptance."""
    trunk = dist_trunk(P)
    params = replace(SETTINGS[setting], max_tokens=50, seed=0)
    [done] = Engine(MTPModel(trunk, dist_heads(trunk, P, **KINDS[kind]))).generate([[TOKENS[0]]], params, depth=3)
    assert done.stats.acceptance_rate == 1.0


@pytest.mark.parametrize("temperature", [0, 1e-6, 1e-4])
def test_temperatures_near_zero_are_greedy(temperature: float) -> None:
    trunk = Trunk(tiny_llama())
    model = MTPModel(trunk, random_heads(trunk))
    prompt = [[3, 1, 4, 1, 5]]
    [greedy] = Engine(model).generate(prompt, SamplingParams(max_tokens=12))
    for depth, seed in ((0, 1), (3, 1), (3, 2)):
        [cold] = Engine(model).generate(
            prompt, SamplingParams(max_tokens=12, temperature=temperature, seed=seed), depth=depth
        )
        assert cold.token_ids == greedy.token_ids


@pytest.mark.parametrize("temperature", [2e-4, 0.01])
def test_low_temperatures_stay_finite(temperature: float) -> None:
    trunk = script_trunk(">abcdefgh<eos>")
    model = MTPModel(trunk, random_heads(trunk))
    params = SamplingParams(max_tokens=20, temperature=temperature, seed=0)
    [done] = Engine(model).generate([">"], params, depth=3)
    assert done.text == "abcdefgh"


@pytest.mark.parametrize(
    ("field", "values"),
    {
        "temperature": (-1, float("nan"), float("inf"), "1", True, None, 101),
        "top_k": (-1, 1.5, True),
        "top_p": (0, -0.1, 1.1, float("nan")),
        "min_p": (-0.1, 1.1, float("nan")),
        "seed": (-1, 2**63, 0.5),
        "max_tokens": (0, -3, 2.0, True),
        "stop": ("", ("a", ""), (3,)),
    }.items(),
)
def test_invalid_values_are_refused_by_name(field: str, values: tuple[Any, ...]) -> None:
    for value in values:
        with pytest.raises(SamplingError, match=f"^{field}: .*not allowed; give") as caught:
            SamplingParams(**{field: value})
        assert caught.value.field == field


def test_settings_of_rows_in_one_batch_do_not_mix(dist_model: MTPModel) -> None:
    """Greedy rows between rows sampled in two ways, in turns: each text is that of the row alone."""
    kinds: list[dict[str, Any]] = [{"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 0.5, "top_k": 2}]
    each = [SamplingParams(max_tokens=12, seed=i, **kinds[i % 3]) for i in range(18)]
    for depth in (0, 3):
        together = Engine(dist_model, max_batch=18).generate([[TOKENS[0]]] * 18, each, depth=depth)
        for params, done in zip(each, together, strict=True):
            [alone] = Engine(dist_model).generate([[TOKENS[0]]], params, depth=depth)
            assert done.token_ids == alone.token_ids


# Seeds


def test_seeds(dist_model: MTPModel) -> None:
    def run(seeds: list[int | None], depth: int) -> list[list[int]]:
        each = [SamplingParams(max_tokens=50, temperature=1.0, seed=seed) for seed in seeds]
        done = Engine(dist_model, max_batch=len(seeds)).generate([[TOKENS[0]]] * len(seeds), each, depth=depth)
        return [completion.token_ids for completion in done]

    for depth in (0, 3):
        [alone] = run([42], depth)
        assert len(alone) == 50
        assert run([42], depth) == [alone]
        beside = run([7, 42, 43, None], depth)
        assert beside[1] == alone
        assert len(set(map(tuple, beside))) == 4
        assert run([None], depth) != run([None], depth)
        torch.manual_seed(0)
        first = run([None, None], depth)
        torch.manual_seed(0)  # the global generator has no part in it
        assert run([None, None], depth) != first
        assert first[0] != first[1]


def test_the_global_generator_is_left_alone(dist_model: MTPModel) -> None:
    before = torch.get_rng_state()
    sample(dist_model, 2, depth=3)
    assert torch.equal(torch.get_rng_state(), before)
