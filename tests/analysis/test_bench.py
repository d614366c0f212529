from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
import torch

from foretell.analysis.bench import run_bench
from foretell.analysis.systems import EngineSystem, TransformersSystem
from foretell.analysis.texts import BenchPrompt, first_difference
from foretell.decoding import judge
from foretell.decoding.memory import heads_num_bytes
from foretell.kernels.build import library
from foretell.models.mtp_model import MTPModel
from foretell.models.packed import PackedLinear
from foretell.models.trunk import Trunk
from foretell.types import Draft, Verdict
from tests.fixtures import byte_tokenizer, random_heads, tiny_llama

PROMPTS = [BenchPrompt("a", [1, 2, 3]), BenchPrompt("b", [5, 6])]


def tiny(**heads: object) -> MTPModel:
    trunk = Trunk(tiny_llama(), byte_tokenizer(), name="tiny")
    return MTPModel(trunk, random_heads(trunk, **heads))  # type: ignore[arg-type]


def test_order_rotates_and_every_system_sees_every_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[int, int]] = []
    run = EngineSystem.run

    def spy(self: EngineSystem, prompt: list[int], max_tokens: int, label: str) -> object:
        order.append((self.depth, prompt[0]))
        return run(self, prompt, max_tokens, label)

    monkeypatch.setattr(EngineSystem, "run", spy)
    seen: list[tuple[int, int]] = []
    report = run_bench(tiny(), PROMPTS, [2, 1], 3, repeats=2, on_progress=lambda a, b: seen.append((a, b)))
    assert order[:3] == [(0, 1), (1, 1), (2, 1)]  # warm-up
    assert order[3:] == [
        *[(0, 1), (1, 1), (2, 1), (1, 5), (2, 5), (0, 5)],
        *[(1, 1), (2, 1), (0, 1), (2, 5), (0, 5), (1, 5)],
    ]
    assert seen[-1] == (12, 12)
    assert report.differences == [] and len(report.records) == 12


def test_a_wrong_text_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def accept_all(draft: Draft, argmax_ids: Sequence[int]) -> Verdict:
        return Verdict(list(range(len(draft))), argmax_ids[-1], True)

    monkeypatch.setattr(judge, "verify_greedy", accept_all)
    report = run_bench(tiny(), PROMPTS, [1], 12)
    assert not report.passed
    assert {(d.depth, d.prompt, d.verdict) for d in report.differences} == {(1, 0, "BUG"), (1, 1, "BUG")}


@pytest.mark.parametrize("packed_first", [True, False])
def test_transformers_gives_the_same_text_from_the_same_weights(packed_first: bool) -> None:
    model = tiny()
    if packed_first:
        model.pack()
    reference = TransformersSystem(model.trunk)
    model.pack()
    linear = {type(m) for m in reference._model.modules() if "Linear" in type(m).__name__}
    assert linear == {torch.nn.Linear} and isinstance(model.trunk.output_head, PackedLinear)
    ours = {p.data_ptr() for p in model.trunk.model.parameters()}
    assert {p.data_ptr() for p in reference._model.parameters()} == ours
    for prompt in PROMPTS:
        plain, other = (s.run(prompt.token_ids, 20) for s in (EngineSystem(model, 0), reference))
        assert plain.token_ids == other.token_ids
        assert other.decode_s > 0 and other.decode_tokens_per_s is not None
    assert plain.times.num_steps == len(plain.token_ids) - 1  # the prefill is not among them


def test_heads_memory() -> None:
    model = tiny(draft_ids=[3, 5, 9])
    assert model.heads is not None
    numbers = sum(p.numel() for p in model.heads.parameters())
    linear = sum(p.numel() for n, p in model.heads.named_parameters() if "proj" in n)
    ids, rows = 3 * 8, 3 * 64 * 4
    assert heads_num_bytes(model.heads) == 4 * numbers + ids + rows
    model.pack()
    copies = 0 if library() is not None else 1  # the kernels read the weights where they are, oneDNN copies them
    assert heads_num_bytes(model.heads) == 4 * (numbers + copies * linear) + ids + (1 + copies) * rows


def test_first_difference() -> None:
    assert first_difference([1, 2], [1, 2]) is None
    assert first_difference([1, 2, 3], [1, 4, 3]) == 1
    assert first_difference([1, 2], [1, 2, 3]) == 2


@pytest.mark.parametrize("depth", [0, 2, "auto"])
def test_an_engine_that_is_kept_times_each_prompt_alone(depth: int | str) -> None:
    system = EngineSystem(tiny(), depth)  # type: ignore[arg-type]
    for _ in range(3):
        start = time.perf_counter()
        sample = system.run([1, 2, 3], 12)
        wall_s = time.perf_counter() - start
        assert sample.completion is not None and sample.times.num_steps == sample.completion.num_rounds - 1
        # What lies between steps, as the policy's choice does, is in the time; reading the prompt is not.
        assert sample.times.total_s < sample.decode_s < wall_s
