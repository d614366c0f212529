"""How threads wait is decided by what else the machine does, before torch reads it."""

from __future__ import annotations

import os
import sys

import pytest

from foretell import threads


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores, no setting yet, torch not loaded."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for name in (*threads._SETTINGS, "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # so that it is undone afterwards, whatever the test sets
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def others(monkeypatch: pytest.MonkeyPatch, number: float) -> None:
    monkeypatch.setattr(threads, "_others_running", lambda: number)


def test_threads_spin_on_an_idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    others(monkeypatch, 0.2)
    assert not threads.share_busy_cores()
    assert "GOMP_SPINCOUNT" not in os.environ


def test_threads_yield_beside_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    others(monkeypatch, 1.0)
    assert threads.share_busy_cores()
    assert os.environ["GOMP_SPINCOUNT"] == "2000"


@pytest.mark.parametrize(
    "why",
    [
        {"GOMP_SPINCOUNT": "7"},
        {"OMP_WAIT_POLICY": "ACTIVE"},
        {"OMP_NUM_THREADS": "1"},
    ],
)
def test_the_users_own_setting_stays(monkeypatch: pytest.MonkeyPatch, why: dict[str, str]) -> None:
    others(monkeypatch, 2.0)
    for name, value in why.items():
        monkeypatch.setenv(name, value)
    assert not threads.share_busy_cores()
    assert os.environ.get("GOMP_SPINCOUNT") == why.get("GOMP_SPINCOUNT")


def test_there_are_cores_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    others(monkeypatch, 3.0)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert not threads.share_busy_cores()


def test_what_runs_is_counted() -> None:
    assert 0 <= threads._others_running() < 10_000


def test_too_late_once_torch_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    others(monkeypatch, 2.0)
    monkeypatch.setitem(sys.modules, "torch", object())
    assert not threads.share_busy_cores()
