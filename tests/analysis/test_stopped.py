"""What a stopped measurement keeps: every single measurement, and summaries of whole turns alone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from foretell.analysis.batch_bench import run_batch_bench
from foretell.analysis.batch_systems import EngineBatch
from foretell.analysis.bench import run_bench
from foretell.analysis.bench_report import BenchReport, together
from foretell.analysis.compare import Comparison, run_comparison
from foretell.analysis.contenders import contenders_of
from foretell.analysis.entries import entries_of
from foretell.analysis.records import Record
from foretell.analysis.stopped import kept, of_turns, whole_turns
from foretell.analysis.systems import EngineSystem
from foretell.analysis.texts import BenchPrompt
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from tests.fixtures import byte_tokenizer, random_heads, tiny_llama

PROMPTS = [BenchPrompt("a", [1 + i, 2, 3]) for i in range(4)]


class Ended(BaseException):
    """What ends a run, as Ctrl-C does: no Exception."""


@pytest.fixture(scope="module")
def model() -> MTPModel:
    trunk = Trunk(tiny_llama(), byte_tokenizer(), name="tiny")
    return MTPModel(trunk, random_heads(trunk))


def ends_after(num_calls: int, system: type, monkeypatch: pytest.MonkeyPatch) -> None:
    run, calls = system.run, []  # type: ignore[attr-defined]

    def ending(self: object, *args: Any) -> object:
        calls.append(1)
        if len(calls) > num_calls:
            raise Ended
        return run(self, *args)

    monkeypatch.setattr(system, "run", ending)


def record(repeat: int, prompt: int, depth: int) -> Record[Any]:
    return Record("foretell", depth, prompt, repeat, "a", SimpleNamespace())


def test_whole_turns_have_every_system() -> None:
    records = [record(0, 0, 0), record(0, 0, 1), record(0, 1, 1), record(1, 0, 0), record(1, 0, 1)]
    assert whole_turns(records, 2) == {(0, 0), (1, 0)} and whole_turns(records, 3) == set()
    assert of_turns(records, {(1, 0), (0, 1)}) == records[2:]


def test_what_ends_a_block_goes_on_after_the_report() -> None:
    seen: list[bool] = []
    with pytest.raises(Ended), kept(seen.append, lambda summaries: summaries):
        raise Ended
    assert seen == [True]
    with kept(seen.append, lambda summaries: summaries):
        pass
    assert seen == [True]  # nothing was stopped

    def report(summaries: bool) -> bool:
        if summaries:
            raise RuntimeError("the trunk is gone")
        return summaries

    with pytest.raises(ZeroDivisionError), kept(seen.append, report):
        raise ZeroDivisionError
    assert seen == [True, False]


def stopped_bench(model: MTPModel, on_stop: Callable[[BenchReport], None], batch: int) -> None:
    if batch == 1:
        run_bench(model, PROMPTS, [1, 2], 6, on_stop=on_stop)
    else:
        run_batch_bench(model, PROMPTS, batch, [1, 2], 6, repeats=4, on_stop=on_stop)


@pytest.mark.parametrize(("batch", "system"), [(1, EngineSystem), (2, EngineBatch)])
def test_a_stopped_bench(model: MTPModel, monkeypatch: pytest.MonkeyPatch, batch: int, system: type) -> None:
    """Three systems: three warm-ups, two whole turns, and two measurements of the third turn."""
    ends_after(3 + 2 * 3 + 2, system, monkeypatch)
    found: list[BenchReport] = []
    with pytest.raises(Ended):
        stopped_bench(model, found.append, batch)
    [report] = found
    assert len(report.records) == 8 and report.num_planned == 12
    assert [run.depth for run in report.runs if run.domain == "all"] == [0, 1, 2]
    counted = 2 * 6 if batch == 1 else 2 * 4 * 6  # output tokens of the whole turns
    assert {run.num_output_tokens for run in report.runs} == {counted}
    values = together([report])
    assert values["batches"][0].items() >= {"incomplete": True, "num_measured": 8, "num_planned": 12}.items()
    assert len(values["samples"]) == 8


@pytest.mark.parametrize(("batch", "system"), [(1, EngineSystem), (2, EngineBatch)])
def test_a_bench_stopped_in_its_first_turn(
    model: MTPModel, monkeypatch: pytest.MonkeyPatch, batch: int, system: type
) -> None:
    ends_after(3 + 2, system, monkeypatch)
    found: list[BenchReport] = []
    with pytest.raises(Ended):
        stopped_bench(model, found.append, batch)
    assert found[0].runs == [] and len(found[0].records) == 2 and found[0].best_depth is None
    assert together(found)["best_depth"] is None and len(together(found)["samples"]) == 2


def test_a_finished_bench_says_nothing_of_it(model: MTPModel) -> None:
    report = run_bench(model, PROMPTS[:1], [1], 4, on_stop=lambda report: pytest.fail("it was not stopped"))
    assert report.num_planned is None and "incomplete" not in together([report])["batches"][0]


@pytest.mark.parametrize(("batch", "system"), [(1, EngineSystem), (2, EngineBatch)])
def test_a_stopped_comparison(model: MTPModel, monkeypatch: pytest.MonkeyPatch, batch: int, system: type) -> None:
    """Plain, heads, look-up: two whole turns of three, and one more measurement."""
    assert model.heads is not None
    entries = entries_of(contenders_of(model.trunk, [("x", model.heads)], stacks=False), [1], [])
    ends_after(3 + 2 * 3 + 1, system, monkeypatch)
    found: list[Comparison] = []
    with pytest.raises(Ended):
        run_comparison(model.trunk, entries, PROMPTS, batch, 6, repeats=4, on_stop=found.append)
    [comparison] = found
    assert len(comparison.records) == 7 and comparison.num_planned == 4 * (4 if batch == 1 else 1) * 3
    assert [c.name for c in comparison.runs if c.run.domain == "all"] == ["plain", "sequential", "ngram"]
    assert len({c.run.num_output_tokens for c in comparison.runs}) == 1
