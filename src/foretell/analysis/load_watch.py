"""LoadWatch: told at once, not only afterwards, where other processes take the cores during a measurement."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from foretell.analysis.load import HARM, LoadSnapshot, is_much
from foretell.threads import num_cores

LOOK_EVERY_S = 5.0
"""Seconds between two looks. The system counts in ticks of 10 ms, and a daemon wakes for a few of them: neither comes
near the share of a core that is worth a word (`load`) in so long a time."""


class LoadWatch:
    """Looks at the cores every few seconds, in a thread, while the block runs; ``on_busy`` is called once, at the first
    look that finds other processes on them, with a sentence.

    ``busy``: that sentence, None so far. A look reads one small file of the system. What is over before the first look
    shows in the report alone, as the mean of the whole block does. ``harm``: what others do to what is measured.
    """

    def __init__(
        self, on_busy: Callable[[str], None] | None = None, look_every_s: float | None = None, harm: str = HARM
    ) -> None:
        self.harm = harm
        self.busy: str | None = None
        self.busy_after_s: float | None = None
        self._on_busy = on_busy
        self._look_every_s = LOOK_EVERY_S if look_every_s is None else look_every_s
        self._start = self._last = LoadSnapshot.take()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_again, name="load watch", daemon=True)

    def __enter__(self) -> Self:
        """Begin to look."""
        self._start = self._last = LoadSnapshot.take()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; no sentence comes afterwards."""
        self._done.set()
        self._thread.join()

    def look(self) -> None:
        """One look at the time since the last one."""
        now = LoadSnapshot.take()
        others, self._last = self._last.cores_of_others(now), now
        if self.busy is None and others is not None and is_much(others):
            self.busy_after_s = now.at_s - self._start.at_s
            self.busy = (
                f"other processes take {others:.2f} of {num_cores()} cores, seen {self.busy_after_s:.0f} s into the "
                "measurement"
            )
            if self._on_busy is not None:
                self._on_busy(self.busy)

    def report(self) -> dict[str, Any]:
        """Plain values for the environment of a file, up to now: see ``LoadSnapshot.report``. ``busy_after_s``: seconds
        to the look that found others first, None where none did; that is worth a note even if the mean is low.
        """
        found = self._start.report(LoadSnapshot.take(), self.harm)
        if self.busy_after_s is not None and not found["note"]:
            found["note"] = (
                f"other processes took the cores for a while, first seen {self.busy_after_s:.0f} s into the "
                f"measurement: where they did, {self.harm}"
            )
        return {**found, "busy_after_s": self.busy_after_s}

    def _look_again(self) -> None:
        while not self._done.wait(self._look_every_s):
            self.look()
