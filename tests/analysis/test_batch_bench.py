from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from foretell.analysis import batch_references
from foretell.analysis.batch_bench import run_batch_bench
from foretell.analysis.batch_references import CannotRun, GenerateBatch, GenerateBatches
from foretell.analysis.batch_systems import EngineBatch, GroupSample, own_seconds
from foretell.analysis.bench import run_bench, settings_of
from foretell.analysis.bench_report import together
from foretell.analysis.step_costs import StepCosts
from foretell.analysis.summary import best_run
from foretell.analysis.texts import BenchPrompt, PromptGroup, groups_of
from foretell.config import SamplingParams
from foretell.decoding import judge
from foretell.decoding.engine import Engine
from foretell.errors import UsageError
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Draft, Verdict
from tests.fixtures import EOS, byte_tokenizer, encode, random_heads, script_trunk, scripted_heads, tiny_llama

PROMPTS = [BenchPrompt("ab"[i % 2], [*range(1 + i, 2 + i + 3 * (i % 3))]) for i in range(8)]


@pytest.fixture(scope="module")
def model() -> MTPModel:
    trunk = Trunk(tiny_llama(), byte_tokenizer(), name="tiny")
    return MTPModel(trunk, random_heads(trunk))


def right(max_positions: int = 256) -> MTPModel:
    """Says the alphabet again and again, and its heads are always right."""
    trunk = script_trunk("abcdefghijklmnopqrstuvwxyza", max_positions=max_positions)
    return MTPModel(trunk, scripted_heads(trunk, "perfect"))


def test_systems_take_turns_on_groups_and_texts_are_those_of_single_runs(
    model: MTPModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[object, ...]] = []
    run = EngineBatch.run

    def spy(self: EngineBatch, group: PromptGroup, max_tokens: int) -> GroupSample:
        order.append((self.setting.label, group.domain, max_tokens))
        return run(self, group, max_tokens)

    monkeypatch.setattr(EngineBatch, "run", spy)
    seen: list[tuple[int, int]] = []
    report = run_batch_bench(
        model, PROMPTS, 2, [2], 10, repeats=2, nodes=[3], on_progress=lambda a, b: seen.append((a, b))
    )
    labels = ["0", "2", "3", "2, 3 nodes"]
    assert order[:4] == [(label, "a", 8) for label in labels]  # warm-up
    assert order[4:12] == [(label, "a", 10) for label in labels] + [
        (label, "b", 10) for label in labels[1:] + labels[:1]
    ]
    assert seen[-1] == (16, 16) and len(report.records) == 16
    assert report.differences == [] and report.num_unlike == {}
    alone = Engine(model).generate([p.token_ids for p in PROMPTS], SamplingParams(max_tokens=10), 0)
    assert [report.plain_texts[i] for i in range(8)] == [done.token_ids for done in alone]


def test_summaries_of_groups() -> None:
    report = run_batch_bench(right(), PROMPTS, 2, [3, "auto"], 13, repeats=2, nodes=[4])
    runs = {(r.domain, r.setting.label): r for r in report.runs}
    assert list(runs) == [
        (d, s) for d in ("all", "a", "b") for s in ("0", "3", "4", "3, 4 nodes", "auto", "auto, 4 nodes")
    ]
    drafted = runs["all", "3"]
    assert (drafted.batch, drafted.mode, drafted.num_prompts, drafted.num_output_tokens) == (
        2,
        "end-to-end",
        8,
        8 * 2 * 13,
    )
    assert drafted.mean_acceptance_length == 4.0 and drafted.drafter == "heads" and drafted.extra_memory_bytes > 0
    assert runs["all", "0"].speedup is not None and runs["all", "0"].speedup.median == 1.0
    assert runs["a", "3"].num_prompts == 4
    shares = drafted.time_share
    assert shares is not None and list(shares) == ["draft", "verify", "other", "prefill"]
    assert sum(shares.values()) == pytest.approx(1.0) and min(shares.values()) > 0
    tree, auto = runs["all", "3, 4 nodes"], runs["all", "auto"]
    assert tree.speedup_over_chain is not None and drafted.speedup_over_chain is None
    assert auto.speedup_over_best_fixed is not None and drafted.speedup_over_best_fixed is None
    assert auto.predicted_speedup is None and auto.drafter == "heads"
    best = best_run(report.runs)
    assert best.setting.is_fixed_chain and report.best_depth == best.depth
    assert report.cold_start is not None and report.cold_start.prompts == [0, 2, 4, 6]
    assert report.cold_start.name == "a, 4 prompts" and (report.cold_start.speedup or 0) > 0


def test_a_request_has_its_own_clock() -> None:
    """Two places: the third request waits for the first that ends (at 2), the fourth for the second (at 5)."""
    assert own_seconds([5.0, 2.0, 6.0, 9.0], 2) == [5.0, 2.0, 4.0, 4.0]
    sample = GroupSample([[1] * 10, [1] * 4], 5.0, [5.0, 1.0])
    assert sample.decode_tokens_per_s == pytest.approx(2.8) and sample.request_tokens_per_s == [2.0, 4.0]


def test_the_queue_is_in_the_groups_time_and_not_in_a_requests() -> None:
    [group] = groups_of([BenchPrompt("a", encode(text)) for text in ("a", "bcd", "ef", "gh")], 2)
    start = time.perf_counter()
    sample = EngineBatch(right(), 2, 0).run(group, 12)
    wall_s = time.perf_counter() - start
    assert [len(text) for text in sample.texts] == [12] * 4
    assert max(sample.request_s) < 0.9 * sample.seconds <= 0.9 * wall_s
    assert sum(sample.request_s) == pytest.approx(2 * sample.seconds, rel=0.1)
    assert sample.times.num_steps > 0 and 0 < sample.prefill_s < sample.seconds


def test_the_policy_keeps_its_engine_and_no_system_reuses_a_prompt(
    model: MTPModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []
    init = Engine.__init__

    def spy(self: Engine, *args: Any, **kw: Any) -> None:
        made.append(kw)
        init(self, *args, **kw)

    monkeypatch.setattr(Engine, "__init__", spy)
    run_batch_bench(model, PROMPTS, 2, [1, "auto"], 4, repeats=2)
    assert len(made) == 3 and all(kw["reuse_prefixes"] is False and kw["max_batch"] == 2 for kw in made)
    del made[:]
    run_bench(model, PROMPTS, [1, "auto"], 4)
    assert len(made) == 3 and all(kw["reuse_prefixes"] is False for kw in made)


def test_the_policy_hears_the_domain(model: MTPModel, monkeypatch: pytest.MonkeyPatch) -> None:
    labels: list[str] = []
    generate = Engine.generate

    def spy(self: Engine, prompts: Any, params: Any, depth: Any, on_finish: Any, nodes: int, label: str) -> Any:
        labels.append(label)
        return generate(self, prompts, params, depth, on_finish, nodes, label)

    monkeypatch.setattr(Engine, "generate", spy)
    run_batch_bench(model, PROMPTS, 2, [], 2)
    run_batch_bench(model, PROMPTS, 5, [], 2)  # a domain has four prompts: mixed
    assert labels == ["a", "a", "b", "", ""]


def test_a_wrong_text_in_a_batch_is_reported(model: MTPModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def accept_all(draft: Draft, argmax_ids: Sequence[int]) -> Verdict:
        return Verdict(list(range(len(draft))), argmax_ids[-1], True)

    monkeypatch.setattr(judge, "verify_greedy", accept_all)
    report = run_batch_bench(model, PROMPTS, 2, [1], 12)
    assert not report.passed
    assert {(d.depth, d.batch, d.verdict) for d in report.differences} == {(1, 2, "BUG")}
    assert {d.prompt for d in report.differences} == set(range(8))


def test_transformers_gives_the_same_texts_and_stops_where_they_end() -> None:
    trunk = script_trunk("abcdefghijkl<eos>", max_positions=64)
    prompts = [BenchPrompt("a", encode(text)) for text in ("a", "c", "e", "g", "i", "abc")]
    [group] = groups_of(prompts, 3)
    ours = EngineBatch(MTPModel(trunk, None), 3, 0).run(group, 9)
    assert [len(text) for text in ours.texts] == [9, 9, 8, 6, 4, 9] and ours.texts[4][-1] == EOS
    for other in (GenerateBatches(trunk, 3), GenerateBatch(trunk, 3)):
        sample = other.run(group, 9)
        assert sample.texts == ours.texts, other.setting
        assert sample.seconds > 0 and len(sample.request_tokens_per_s) == 6
    padded = GenerateBatches(trunk, 3).run(group, 9)
    assert len(set(padded.request_s)) == 2  # texts come when their whole batch is done


def test_references_are_measured_beside_ours(model: MTPModel) -> None:
    model.pack()
    report = run_batch_bench(model, PROMPTS, 2, [1], 6, reference=True)
    assert report.num_unlike == {"transformers": 0, "transformers generate_batch": 0} and report.notes == []
    runs = {r.setting.system: r for r in report.runs if r.domain == "all" and not r.depth}
    assert list(runs) == ["foretell", "transformers", "transformers generate_batch"]
    ours = runs["foretell"]
    assert ours.speedup_over_reference is not None and ours.speedup_over_generate_batch is not None
    assert runs["transformers"].speedup_over_reference is not None
    assert runs["transformers"].speedup_over_reference.median == 1.0


@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_what_cannot_run_is_left_out_with_a_note(
    model: MTPModel, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    calls: list[int] = []
    run = GenerateBatch.run

    def broken(self: GenerateBatch, group: PromptGroup, max_tokens: int) -> GroupSample:
        calls.append(1)
        if len(calls) > fails_at:
            raise CannotRun("no such\nattention")
        return run(self, group, max_tokens)

    monkeypatch.setattr(GenerateBatch, "run", broken)
    report = run_batch_bench(model, PROMPTS, 2, [], 3, reference=True)
    assert report.notes == ["transformers generate_batch at batch 2 is left out: no such attention"]
    assert {r.system for r in report.runs} == {"foretell", "transformers"} and len(calls) == fails_at + 1


@pytest.mark.parametrize(("num_prompts", "joins"), [(2, False), (3, True)])
def test_groups_that_nobody_joins_are_noted(model: MTPModel, num_prompts: int, joins: bool) -> None:
    prompts = [BenchPrompt(domain, encode("a")) for domain in ("x", "y") for _ in range(num_prompts)]
    notes = run_batch_bench(model, prompts, 2, [0], 2).notes
    said = ["at batch 2 no group has more prompts than there are places, so no request joined while others decoded"]
    assert [note.partition(";")[0] for note in notes] == ([] if joins else said)


def test_generate_batch_says_why_it_cannot_run(model: MTPModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise MemoryError("too little of it")

    monkeypatch.setattr(batch_references, "ContinuousBatchingConfig", lambda **_: None)
    system = GenerateBatch(model.trunk, 2)
    monkeypatch.setattr(system._model, "generate_batch", refuse)
    with pytest.raises(CannotRun, match="MemoryError: too little of it"):
        system.run(groups_of(PROMPTS, 2)[0], 2)
    monkeypatch.setattr(system._model, "generate_batch", lambda *_, **__: {})
    with pytest.raises(CannotRun, match="4 of 4 texts never came"):
        system.run(groups_of(PROMPTS, 2)[0], 2)


def test_settings(model: MTPModel) -> None:
    def labels(*args: Any) -> list[str]:
        return [s.label for s in settings_of(model, *args, None)]

    assert labels([2, "auto", 1], []) == ["0", "1", "2", "auto"]
    assert labels([1, "auto"], [2, 8])[-3:] == ["auto", "auto, 2 nodes", "auto, 8 nodes"]
    assert labels([0, "auto"], [4]) == ["0", "4", "auto", "auto, 4 nodes"]
    assert labels([1, 3], [2, 8]) == ["0", "1", "2", "3", "8", "1, 2 nodes", "1, 8 nodes", "3, 8 nodes"]
    trunk = model.trunk
    two = MTPModel(trunk, random_heads(trunk, unrolled=False, num_modules=2, num_depths=2))
    assert [s.label for s in settings_of(two, [1], [4], None)] == ["0", "1", "2", "1, 4 nodes"]
    for depths, nodes in (([4], [3]), ([0], [4]), ([1, "auto"], [1])):
        with pytest.raises(UsageError, match="no tree"):
            labels(depths, nodes)


def test_costs_of_steps_are_collected() -> None:
    costs = StepCosts()
    reports = [
        run_bench(right(), PROMPTS, [3], 9, nodes=[5], costs=costs),
        run_batch_bench(right(), PROMPTS, 2, [3], 9, costs=costs),
    ]
    cells = {(c["batch"], c["rows"], c["nodes"]): c for c in costs.as_dict()["pass"]}
    assert {(1, 1, 1), (1, 1, 4), (1, 1, 6), (2, 2, 2), (2, 2, 8)} <= set(cells)
    # Depth 0: eight steps behind the first token of eight texts; the warm-up's are none.
    assert cells[1, 1, 1]["num_steps"] >= 8 * 8
    assert all(c["seconds"]["median"] > 0 for c in cells.values())
    drafts = {(c["batch"], c["rows"], c["depth"], c["nodes"]) for c in costs.as_dict()["draft"]}
    assert {(1, 1, 3, 3), (1, 1, 3, 5), (2, 2, 3, 6)} <= drafts
    file = together(reports)
    assert [b["batch"] for b in file["batches"]] == [1, 2]
    assert [b["num_plain_texts_unlike_batch_1"] for b in file["batches"]] == [0, 0]
    assert {(r["batch"], r["mode"]) for r in file["runs"]} == {(1, "decode"), (2, "end-to-end")}
    assert file["best_depth"] == reports[0].best_depth


def test_steps_that_read_prompts_or_warm_up_are_no_costs() -> None:
    costs = StepCosts()
    prompts = [BenchPrompt("a", encode(text)) for text in ("ab", "cde", "fghi")]
    run_bench(right(), prompts, [], 9, costs=costs)
    [cell] = costs.as_dict()["pass"]
    assert cell["num_steps"] == 8 * 3
    run_batch_bench(right(), prompts, 3, [], 9, costs=costs)
    cells = {(c["batch"], c["rows"], c["nodes"]): c["num_steps"] for c in costs.as_dict()["pass"]}
    assert cells == {(1, 1, 1): 8 * 3, (3, 3, 3): 8}


def test_plain_texts_that_differ_between_batch_sizes_are_counted(model: MTPModel) -> None:
    single, batch = run_bench(model, PROMPTS, [], 4), run_batch_bench(model, PROMPTS, 2, [], 4)
    assert batch.num_plain_unlike(single) == 0
    single.plain_texts[3] = [0]
    assert batch.num_plain_unlike(single) == 1
