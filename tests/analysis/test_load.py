from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from foretell.analysis import load
from foretell.analysis.load import LoadSnapshot


def test_cores_of_others() -> None:
    start = LoadSnapshot(10.0, 1.0, 100.0, (0.5, 0.5, 0.5))
    end = LoadSnapshot(20.0, 5.0, 119.0, (1.5, 0.5, 0.5))  # busy for 19 s, 4 of them ours, in 10 s
    assert start.cores_of_others(end) == pytest.approx(1.5)
    found = start.report(end)
    assert found["load_average_start"] == (0.5, 0.5, 0.5) and found["load_average_end"][0] == 1.5
    assert "other processes took 1.50 of" in found["note"]


def test_a_quiet_machine_has_no_note() -> None:
    start, end = LoadSnapshot(0.0, 0.0, 0.0, None), LoadSnapshot(10.0, 9.0, 9.1, None)
    assert start.report(end)["note"] is None
    assert start.report(LoadSnapshot(10.0, 9.0, None, None))["cores_of_others"] is None


def test_ticks_of_our_cores_count_and_idle_ones_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    #        user nice system idle iowait irq softirq steal guest
    stat.write_text("cpu 1 1 1 1 1 1 1 1 1\ncpu0 100 10 20 5000 600 1 2 7 50 0\ncpu7 900 0 0 0 0 0 0 0 0 0\nintr 5\n")
    monkeypatch.setattr(load, "_STAT", stat)
    monkeypatch.setattr(load.os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(load.os, "sysconf", lambda _: 100)
    assert LoadSnapshot.take().busy_s == pytest.approx(1.40)


@pytest.mark.skipif(not Path("/proc/stat").is_file(), reason="the system does not tell")
def test_another_process_is_seen() -> None:
    start = LoadSnapshot.take()
    code = "import time; end = time.perf_counter() + 0.4\nwhile time.perf_counter() < end: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (start.cores_of_others(LoadSnapshot.take()) or 0) > 0.3
