"""How OpenMP's threads wait for each other: spinning is fastest alone, and ruinous beside other work.

Two threads on two cores of which one is busy: 0.5 tokens/s while they spin, 15 while they yield; on an idle machine
24 and 19 (docs/log.md). So the choice depends on what the machine does when a command starts.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
_SHORT_SPIN = "2000"
_SAMPLES, _PAUSE_S = 5, 0.006


BUSY = "other processes keep this machine busy: threads yield to them, and speeds will be lower than it can do alone"


def share_busy_cores() -> bool:
    """Let threads yield where other processes need some of the cores they run on; True if so.

    To be called before torch is imported: its OpenMP reads the setting once. A setting of the user's own stays.
    """
    if "torch" in sys.modules or any(name in os.environ for name in _SETTINGS):
        return False
    num_threads = min(num_cores(), _own_limit() or num_cores())
    if num_threads == 1 or num_threads + _others_running() <= (os.cpu_count() or 1) + 0.5:
        return False
    os.environ["GOMP_SPINCOUNT"] = _SHORT_SPIN
    return True


def num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _own_limit() -> int | None:
    value = os.environ.get("OMP_NUM_THREADS", "")
    return int(value) if value.isdigit() and int(value) else None


def _others_running() -> float:
    """Threads of other processes that run or wait for a core, on the mean of a few looks; 0 where that is unknown."""
    seen = []
    for _ in range(_SAMPLES):
        try:
            running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
        except (OSError, IndexError):
            return 0.0
        seen.append(int(running) - 1)  # one is this process
        time.sleep(_PAUSE_S)
    return sum(seen) / len(seen)
