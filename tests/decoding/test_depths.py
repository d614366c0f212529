"""DepthChooser in the engine: "auto", trees on "auto", and what a grammar forces."""

from __future__ import annotations

from typing import Any

import pytest

from foretell.config import SamplingParams
from foretell.decoding.engine import Engine
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from tests.fixtures import byte_tokenizer, encode, random_heads, script_trunk, scripted_heads, tiny_llama

CHAIN = "abcdefghijklmnopqrstuvwxyza"
PROMPTS = [encode(text) for text in ("a", "cdefghij", "xyzabc")]


def model(quality: str) -> MTPModel:
    trunk = script_trunk(CHAIN, max_positions=300)
    return MTPModel(trunk, scripted_heads(trunk, quality))  # type: ignore[arg-type]


def slow_trunk(monkeypatch: pytest.MonkeyPatch, engine: Engine, pass_s: float) -> None:
    """Times as if a pass cost ``pass_s`` whatever it brings, so that what is decided does not depend on the machine."""
    run = engine._core.step

    class Timed:
        def __getattr__(self, name: str) -> Any:
            return getattr(run, name)

        def __call__(self, works: Any) -> Any:
            times = run(works)
            times.verify_s, times.other_s = pass_s, 0.0
            times.draft_s = 0.1 * pass_s * max(work.shape.depth for work in works)
            return times

    monkeypatch.setattr(engine._core, "step", Timed())


@pytest.mark.parametrize("max_batch", [1, 3])
def test_auto_drafts_where_it_pays(monkeypatch: pytest.MonkeyPatch, max_batch: int) -> None:
    texts = {}
    for quality in ("perfect", "wrong"):
        engine = Engine(model(quality), max_batch)
        engine.generate([PROMPTS[0]], SamplingParams(max_tokens=2), depth=1)  # makes the drafter
        slow_trunk(monkeypatch, engine, 0.05)
        texts[quality] = engine.generate(PROMPTS, SamplingParams(max_tokens=200), depth="auto")
    plain = Engine(model("perfect")).generate(PROMPTS, SamplingParams(max_tokens=200))
    for quality, done in texts.items():
        assert [d.token_ids for d in done] == [d.token_ids for d in plain], quality
    assert sum(d.num_rounds for d in texts["perfect"]) < 0.35 * sum(d.num_rounds for d in plain)
    wrong = sum(d.stats.num_drafts for d in texts["wrong"])
    assert wrong < 0.25 * sum(d.num_rounds for d in texts["wrong"])


def test_auto_without_a_drafter_is_plain() -> None:
    trunk = script_trunk(CHAIN)
    [done] = Engine(MTPModel(trunk)).generate([PROMPTS[0]], SamplingParams(max_tokens=20), depth="auto")
    assert done.stats.num_draft_tokens == 0 and len(done.token_ids) == 20


def test_auto_tries_trees_and_keeps_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(model("wrong"))
    engine.generate([PROMPTS[0]], SamplingParams(max_tokens=2), depth=1)
    slow_trunk(monkeypatch, engine, 0.05)
    done = engine.generate(PROMPTS, SamplingParams(max_tokens=60), depth="auto", num_nodes=8)
    plain = Engine(model("wrong")).generate(PROMPTS, SamplingParams(max_tokens=60))
    assert [d.token_ids for d in done] == [d.token_ids for d in plain]
    assert any(d.stats.num_draft_tokens > 2 * len(d.stats.drafted_per_position) * d.stats.num_drafts / 2 for d in done)


def test_rows_with_depths_of_their_own() -> None:
    done = Engine(model("perfect"), 3).generate(PROMPTS, SamplingParams(max_tokens=30), depth=[0, 2, "auto"])
    assert done[0].stats.num_drafts == 0
    assert len(done[1].stats.drafted_per_position) == 2
    assert all(len(d.token_ids) == 30 for d in done)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_the_grammar_forces_is_drafted_for_nothing(temperature: float) -> None:
    """One of two strings that part at their first character: all others are forced, and accepted."""
    trunk = Trunk(tiny_llama(), byte_tokenizer())
    engine = Engine(MTPModel(trunk, random_heads(trunk)))
    params = SamplingParams(
        max_tokens=40, temperature=temperature, seed=3, choice=["north-north-west", "south-by-east"]
    )
    [plain] = engine.generate([[5, 6]], params, depth=0)
    [done] = engine.generate([[5, 6]], params, depth=2)
    assert done.text in params.choice  # type: ignore[operator]
    assert temperature or done.token_ids == plain.token_ids
    assert done.stats.acceptance_rate == 1
    assert done.num_rounds < len(done.token_ids) / 4
