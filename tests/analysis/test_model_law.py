"""Samples of any model against the trunk's own law, by the probability integral transform."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from foretell.analysis.law import known_model
from foretell.analysis.model_law import check_model_law, distance_limit, kolmogorov_distance, law_of, transformed
from foretell.analysis.texts import BenchPrompt
from foretell.config import SamplingParams
from foretell.decoding import judge
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Draft, Verdict
from tests.fixtures import byte_tokenizer, random_heads, tiny_llama

PROMPTS = [BenchPrompt("a", [0]), BenchPrompt("b", [3, 1])]
WARM = SamplingParams(temperature=1.0)


def tiny() -> MTPModel:
    trunk = Trunk(tiny_llama(), byte_tokenizer(), name="tiny")
    return MTPModel(trunk, random_heads(trunk))


def test_transform_by_hand() -> None:
    """Likeliest first, of equal ones the smaller id: mass before the token, and half of its own."""
    law_NV = torch.tensor([[0.1, 0.6, 0.3], [0.25, 0.5, 0.25], [0.25, 0.5, 0.25]])
    halves = torch.full((3,), 0.5, dtype=torch.float64)
    assert transformed(law_NV, [0, 0, 2], halves).tolist() == pytest.approx([0.95, 0.625, 0.875])


def test_distance_by_hand() -> None:
    assert kolmogorov_distance([0.5]) == pytest.approx(0.5)
    assert kolmogorov_distance([0.1, 0.2]) == pytest.approx(0.8)
    assert kolmogorov_distance([(i + 0.5) / 1000 for i in range(1000)]) == pytest.approx(0.0005)


def test_a_sound_sampler_is_rarely_called_broken() -> None:
    """The limit is passed by fewer than one in a thousand of uniform samples."""
    draw = random.Random(0)
    alarms = sum(kolmogorov_distance([draw.random() for _ in range(200)]) >= distance_limit(200) for _ in range(1000))
    assert alarms <= 1


@pytest.mark.parametrize(
    "params",
    [
        WARM,
        SamplingParams(temperature=0.7, top_p=0.8),
        SamplingParams(temperature=1.0, top_k=5, min_p=0.05),
        SamplingParams(temperature=1.0, repetition_penalty=1.5, presence_penalty=0.5, logit_bias={7: 3.0}),
    ],
)
def test_drafted_samples_have_the_law(params: SamplingParams) -> None:
    """Chains and trees, alone and many at a time."""
    model = tiny()
    for nodes, batch in ((0, 1), (5, 4)):
        laws = check_model_law(model, PROMPTS, [2], params, 300, num_nodes=nodes, batch=batch)
        assert [law.depth for law in laws] == [0, 2]
        for law in laws:
            assert law.passed and law.num_samples > 200 and law.num_outside == 0, law
        assert laws[1].acceptance_rate is not None and laws[1].num_nodes == nodes


def accept_all(draft: Draft, probs_NV: torch.Tensor, generator: object) -> Verdict:
    last = probs_NV[-1]
    return Verdict(list(range(len(draft))), int(torch.multinomial(last, 1, generator=generator)), True)  # type: ignore[arg-type]


def argmax_only(draft: Draft, probs_NV: torch.Tensor, generator: object) -> Verdict:
    return Verdict([], int(probs_NV[0].argmax()), False)


@pytest.mark.parametrize("wrong", [accept_all, argmax_only])
def test_a_wrong_verifier_is_found(wrong: Callable[..., Verdict], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "verify_sampled", wrong)
    laws = check_model_law(known_model(), PROMPTS, [2], WARM, 600)
    assert not laws[1].passed and laws[1].distance > 2 * laws[1].limit


def test_another_temperature_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law is worked out from what was asked, so an engine that forgets an option is seen at depth 0 too."""
    filtered = judge.filtered_probs
    monkeypatch.setattr(
        judge, "filtered_probs", lambda logits, params: filtered(logits, SamplingParams(temperature=1.0))
    )
    laws = check_model_law(known_model(), PROMPTS, [1], SamplingParams(temperature=0.5), 600)
    assert not any(law.passed for law in laws)


def test_tokens_outside_the_law_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    filtered = judge.filtered_probs
    monkeypatch.setattr(
        judge, "filtered_probs", lambda logits, params: filtered(logits, SamplingParams(temperature=1.0))
    )
    laws = check_model_law(known_model(), PROMPTS, [1], SamplingParams(temperature=1.0, top_k=3), 600)
    assert all(law.num_outside > 10 and not law.passed for law in laws)


def test_the_law_follows_the_rules_of_the_request() -> None:
    """A ban, and a penalty that counts what is there already."""
    trunk = tiny().trunk
    plain = law_of(trunk, [5, 6], [7, 8], WARM)
    banned = law_of(trunk, [5, 6], [7, 8], SamplingParams(temperature=1.0, logit_bias={9: -100.0}))
    assert torch.allclose(plain.sum(1), torch.ones(2)) and (banned[:, 9] == 0).all() and (plain[:, 9] > 0).all()
    frequent = law_of(trunk, [5, 6], [7, 8], SamplingParams(temperature=1.0, frequency_penalty=2.0))
    assert torch.allclose(frequent[0], plain[0]) and frequent[1, 7] < plain[1, 7]
