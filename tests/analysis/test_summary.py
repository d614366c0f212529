from __future__ import annotations

from typing import Any

import pytest

from foretell.analysis.batch_systems import GroupSample
from foretell.analysis.records import Record, Spread
from foretell.analysis.summary import RunSummary, best_run, summarise
from foretell.analysis.systems import Sample
from foretell.decoding.step import StepTimes
from foretell.types import AcceptanceStats, Completion


def record(
    depth: int, prompt: int, decode_s: float, num_steps: int, domain: str = "chat", accepted: tuple[int, ...] = ()
) -> Record[Sample]:
    """11 tokens, so 10 after the first; a quarter of the time drafts."""
    stats = AcceptanceStats()
    for num in accepted:
        stats.count(depth, num)
    done = Completion([0], [1] * 11, "", "length", stats, [], num_steps)
    times = StepTimes(0.25 * decode_s, 0.7 * decode_s, 0.05 * decode_s, num_steps)
    return Record("foretell", depth, prompt, 0, domain, Sample([1] * 11, decode_s, times, done, 1000 * depth + prompt))


def grouped(depth: int | str, group: int, seconds: float, num_nodes: int = 0, domain: str = "chat") -> Record[Any]:
    """Two texts of five tokens; a second of it reads prompts, the rest is a step each."""
    stats = AcceptanceStats()
    stats.count(1, 1, 4)
    times = StepTimes(0.0, seconds - 1, 0.0, 4)
    sample = GroupSample([[1] * 5] * 2, seconds, [seconds, seconds / 2], times, 1.0, stats, 7)
    return Record("foretell", depth, group, 0, domain, sample, num_nodes)  # type: ignore[arg-type]


def test_groups_trees_and_the_policy() -> None:
    """Group 1 is as dear again for everyone; the policy is slower than the best depth, 2, on the second alone."""
    records = [
        record
        for group, scale, domain in ((0, 1.0, "chat"), (1, 2.0, "code"))
        for record in (
            grouped("auto", group, scale * (4.0 if group == 0 else 8.0), domain=domain),
            grouped("auto", group, scale * 4.0, num_nodes=3, domain=domain),
            grouped(2, group, scale * 2.0, num_nodes=3, domain=domain),
            grouped(1, group, scale * 5.0, domain=domain),
            grouped(2, group, scale * 4.0, domain=domain),
            grouped(4, group, scale * 8.0, domain=domain),
            grouped(0, group, scale * 8.0, domain=domain),
        )
    ]
    runs = {(r.domain, r.setting.label): r for r in summarise(records, "float32", "heads", batch=2)}
    assert [label for domain, label in runs if domain == "all"] == [
        "0",
        "1",
        "2",
        "4",
        "2, 3 nodes",
        "auto",
        "auto, 3 nodes",
    ]
    two, tree, auto, branching = (runs["all", label] for label in ("2", "2, 3 nodes", "auto", "auto, 3 nodes"))
    assert two.speedup == Spread(2.0, 2.0, 2.0) and two.decode_tokens_per_s == Spread(
        1.875, pytest.approx(1.375), pytest.approx(2.375)
    )
    assert two.request_tokens_per_s is not None and two.request_tokens_per_s.median == pytest.approx(1.25)
    assert (two.batch, two.mode, two.num_prompts, two.num_output_tokens) == (2, "end-to-end", 4, 20)
    assert two.time_share == pytest.approx({"draft": 0, "verify": 10 / 12, "other": 0, "prefill": 2 / 12})
    assert tree.speedup_over_chain == Spread(2.0, 2.0, 2.0)  # over 2, not over 4: that drafts more
    assert branching.speedup_over_best_fixed == Spread(0.5, 0.5, 0.5)  # the tree; chains alone are not its measure
    assert branching.speedup_over_chain is None
    assert (tree.num_nodes, tree.depth) == (3, 2) and two.num_nodes == 0
    best = auto.speedup_over_best_fixed
    assert best is not None and best.median == pytest.approx(0.75)
    assert runs["code", "auto"].speedup_over_best_fixed == Spread(0.5, 0.5, 0.5)
    assert best_run(list(runs.values())).setting == two.setting


def test_mixed_groups_have_no_line_of_their_own() -> None:
    runs = summarise([grouped(0, 0, 2.0, domain="mixed")], "float32", batch=2)
    assert [(r.domain, r.num_prompts) for r in runs] == [("all", 2)]


def by_key(runs: list[RunSummary]) -> dict[tuple[str, str, object], RunSummary]:
    return {(r.domain, r.system, r.depth): r for r in runs}


def test_speedups_are_paired() -> None:
    """The machine was twice as slow for prompt 1: both ratios are 2, where a ratio of medians would differ."""
    records = [
        record(0, 0, 10.0, 10),
        record(1, 0, 5.0, 5, accepted=(1, 1, 1, 1, 1)),
        record(0, 1, 20.0, 10, "code"),
        record(1, 1, 10.0, 5, "code", accepted=(1, 1, 1, 1, 1)),
        Record("transformers", 0, 0, 0, "chat", Sample([1] * 11, 20.0, StepTimes())),
        Record("transformers", 0, 1, 0, "code", Sample([1] * 11, 80.0, StepTimes())),
    ]
    runs = by_key(summarise(records, "float32", "ngram"))
    assert list(runs) == [
        (domain, *rest)
        for domain in ("all", "chat", "code")
        for rest in (("foretell", 0), ("foretell", 1), ("transformers", 0))
    ]
    drafted = runs["all", "foretell", 1]
    assert drafted.speedup == Spread(2.0, 2.0, 2.0)
    assert drafted.speedup_over_reference == Spread(6.0, pytest.approx(4.4), pytest.approx(7.6))  # 4 and 8
    assert drafted.decode_tokens_per_s == Spread(1.5, pytest.approx(1.1), pytest.approx(1.9))
    assert drafted.time_share == pytest.approx({"draft": 0.25, "verify": 0.7, "other": 0.05})
    assert drafted.mean_acceptance_length == 2.0 and drafted.acceptance_by_depth == [1.0]
    assert drafted.round_cost == pytest.approx(1.0) and drafted.predicted_speedup == pytest.approx(2.0)
    assert (drafted.num_prompts, drafted.num_output_tokens, drafted.extra_memory_bytes) == (2, 22, 1001)
    assert drafted.drafter == "ngram" and runs["all", "foretell", 0].drafter is None
    assert runs["all", "transformers", 0].time_share is None
    assert runs["code", "foretell", 1].num_prompts == 1


def test_best_depth_may_be_0() -> None:
    slow = [record(0, 0, 10.0, 10), record(1, 0, 12.0, 8, accepted=(1, 0, 0, 0, 0, 0, 0, 0))]
    runs = summarise(slow, "float32")
    assert best_run(runs).depth == 0
    assert by_key(runs)["all", "foretell", 1].predicted_speedup == pytest.approx(1.125 / 1.5)
    fast = [record(0, 0, 10.0, 10), record(1, 0, 9.0, 8), record(2, 0, 8.0, 8), record(3, 0, 8.0, 8)]
    assert best_run(summarise(fast, "float32", 0)).depth == 2


def test_an_output_of_one_token_has_no_speed() -> None:
    short = Record("foretell", 0, 0, 0, "chat", Sample([1], 0.0, StepTimes()))
    [run, _] = summarise([short], "float32", 0)
    assert run.decode_tokens_per_s is None and run.speedup is None and run.mean_acceptance_length is None


def test_spread() -> None:
    assert Spread.of([]) is None and Spread.of([None]) is None
    assert Spread.of([3.0]) == Spread(3.0, 3.0, 3.0)
    assert Spread.of(float(i) for i in range(11)) == Spread(5.0, 1.0, 9.0)
