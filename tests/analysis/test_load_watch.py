"""Other processes on the cores are told of once, at the first look that finds them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from foretell.analysis import load, load_watch
from foretell.analysis.load import LoadSnapshot
from foretell.analysis.load_watch import LoadWatch

NEVER = 3600.0
"""Seconds to the next look of the thread: tests look themselves."""


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (load, load_watch):
        monkeypatch.setattr(module, "num_cores", lambda: 4)


def snapshots(monkeypatch: pytest.MonkeyPatch, busy_s: Sequence[float]) -> None:
    """One every ten seconds, at which the cores have been busy for so long in all; this process for half a second."""
    clock: Iterator[LoadSnapshot] = iter(
        LoadSnapshot(10.0 * i, 0.5 * i, 0.5 * i + busy, None) for i, busy in enumerate(busy_s)
    )
    monkeypatch.setattr(LoadSnapshot, "take", lambda: next(clock))


def test_one_sentence_at_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots(monkeypatch, [0, 0, 1, 11, 21, 21])  # made, entered; 0.1 of a core, 1, 1; the end
    said: list[str] = []
    with LoadWatch(said.append, NEVER) as watch:
        watch.look()
        assert said == [] and watch.busy is None
        watch.look()
        watch.look()
    assert said == [watch.busy] and said[0].startswith("other processes take 1.00 of 4 cores, seen 20 s into")
    assert watch.busy_after_s == 20.0
    assert "took 0.53 of 4" in watch.report()["note"]  # 21 s in 40


def test_a_short_time_is_noted_though_the_mean_is_low(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots(monkeypatch, [0, 0, 5, *[5] * 5])
    with LoadWatch(None, NEVER) as watch:
        for _ in range(5):
            watch.look()
    found = watch.report()
    assert found["cores_of_others"] < 0.2 and found["busy_after_s"] == 10.0
    assert "took the cores for a while, first seen 10 s into" in found["note"]


def test_a_quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots(monkeypatch, [0, 0, 1, 2, 3])
    with LoadWatch(lambda _: pytest.fail("nobody was there"), NEVER) as watch:
        watch.look()
        watch.look()
    found = watch.report()
    assert (found["note"], found["busy_after_s"]) == (None, None) and set(found) > {"cores_of_others"}


@pytest.mark.skipif(not Path("/proc/stat").is_file(), reason="the system does not tell")
def test_another_process_is_told_of_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (load, load_watch):
        monkeypatch.setattr(module, "num_cores", lambda: 1)
    said: list[str] = []
    code = "import time; end = time.perf_counter() + 1.0\nwhile time.perf_counter() < end: pass"
    with LoadWatch(said.append, 0.2):
        subprocess.run([sys.executable, "-c", code], check=True)
        assert len(said) == 1
