"""What else ran on this machine during a measurement, so that a figure from a busy one is not taken for a clean one."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretell.threads import num_cores

_STAT = Path("/proc/stat")
HARM = "tokens/s are too low, speed-ups less sure"
"""What other processes do to a bench."""
_SHARE = 0.05
"""Of the cores: others may have so much before it is worth a note."""


@dataclass(frozen=True)
class LoadSnapshot:
    """Clocks at one moment. ``busy_s``: seconds that the cores this process may use have worked, for whomever; None
    where the system does not tell. ``own_s``: this process's part.
    """

    at_s: float
    own_s: float
    busy_s: float | None
    load_average: tuple[float, float, float] | None

    @classmethod
    def take(cls) -> LoadSnapshot:
        """Now."""
        average = os.getloadavg() if hasattr(os, "getloadavg") else None
        return cls(time.perf_counter(), time.process_time(), _busy_s(), average)

    def cores_of_others(self, end: LoadSnapshot) -> float | None:
        """Cores that other processes, or the host of a virtual machine, had on average up to ``end``."""
        seconds = end.at_s - self.at_s
        if self.busy_s is None or end.busy_s is None or seconds <= 0:
            return None
        return max(0.0, (end.busy_s - self.busy_s - (end.own_s - self.own_s)) / seconds)

    def report(self, end: LoadSnapshot, harm: str = HARM) -> dict[str, Any]:
        """Plain values for the environment of a file; ``note`` is None where the machine was quiet, else it ends with
        ``harm``, what that does to the figures.
        """
        others = self.cores_of_others(end)
        note = None
        if others is not None and is_much(others):
            note = f"other processes took {others:.2f} of {num_cores()} cores meanwhile: {harm}"
        return {
            "load_average_start": self.load_average,
            "load_average_end": end.load_average,
            "cores_of_others": others,
            "note": note,
        }


def is_much(cores_of_others: float) -> bool:
    """Whether others have so much that figures suffer."""
    return cores_of_others > _SHARE * num_cores()


def _busy_s() -> float | None:
    """Time not idle, nor waiting for a disk, of the cores this process may use; a host that takes them counts too."""
    if not _STAT.is_file():
        return None
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    names = {f"cpu{core}" for core in cores}
    ticks = 0
    for line in _STAT.read_text().splitlines():
        name, *fields = line.split()
        if name in names:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
            ticks += user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK") if ticks else None
