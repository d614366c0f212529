from __future__ import annotations

import pytest

from foretell.analysis.summary import Record, RunSummary, Spread, best_run, summarise
from foretell.analysis.systems import Sample
from foretell.decoding.step import StepTimes
from foretell.types import AcceptanceStats, Completion


def record(
    depth: int, prompt: int, decode_s: float, num_steps: int, domain: str = "chat", accepted: tuple[int, ...] = ()
) -> Record:
    """11 tokens, so 10 after the first; a quarter of the time drafts."""
    stats = AcceptanceStats()
    for num in accepted:
        stats.count(depth, num)
    done = Completion([0], [1] * 11, "", "length", stats, [], num_steps)
    times = StepTimes(0.25 * decode_s, 0.7 * decode_s, 0.05 * decode_s, num_steps)
    return Record("foretell", depth, prompt, 0, domain, Sample([1] * 11, decode_s, times, done, 1000 * depth + prompt))


def by_key(runs: list[RunSummary]) -> dict[tuple[str, str, int], RunSummary]:
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
