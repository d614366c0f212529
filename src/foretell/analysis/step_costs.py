"""StepCosts: c(n) as it was measured: seconds of the trunk's pass by rows and nodes, and of drafting."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from foretell.analysis.records import Spread
from foretell.decoding.engine import Engine
from foretell.decoding.scheduler import Work
from foretell.decoding.step import StepTimes


class StepCosts:
    """Collects the steps of every engine it watches, except those that read prompts.

    ``passes``: (batch, rows, nodes of the pass, roots included) -> seconds of the pass and everything behind it;
    ``drafts``: (batch, rows that draft, greatest depth, drafted nodes) -> seconds. ``batch`` is the engine's: one of
    batch 1 pads its passes. Warm-up is in no run, so it is none of these steps either (``paused``).
    """

    def __init__(self) -> None:
        self._is_paused = False
        self.passes: dict[tuple[int, int, int], list[float]] = {}
        self.drafts: dict[tuple[int, int, int, int], list[float]] = {}

    def watch(self, engine: Engine) -> None:
        """Collect this engine's steps from now on."""

        def on_step(works: Sequence[Work], times: StepTimes) -> None:
            if not self._is_paused and all(work.num_read == 1 for work in works):
                drafted = [len(work.draft) for work in works]
                depth = max((work.shape.depth for work in works if len(work.draft)), default=0)
                self.add(engine.max_batch, drafted, depth, times)

        engine.watch(on_step)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Steps within are not collected."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def add(self, batch: int, drafted: Sequence[int], depth: int, times: StepTimes) -> None:
        """One step: drafted nodes of every row, and the deepest draft."""
        num_nodes = len(drafted) + sum(drafted)
        self.passes.setdefault((batch, len(drafted), num_nodes), []).append(times.verify_s + times.other_s)
        if num_drafting := sum(map(bool, drafted)):
            self.drafts.setdefault((batch, num_drafting, depth, sum(drafted)), []).append(times.draft_s)

    @staticmethod
    def seconds(values: Sequence[float]) -> float | None:
        """What stands for the seconds of several steps: their median."""
        return statistics.median(values) if values else None

    def as_dict(self) -> dict[str, Any]:
        """Two lists for JSON, with the number of steps and the spread of their seconds."""
        return {
            "pass": [
                dict(zip(("batch", "rows", "nodes"), key, strict=True)) | _seconds(values)
                for key, values in sorted(self.passes.items())
            ],
            "draft": [
                dict(zip(("batch", "rows", "depth", "nodes"), key, strict=True)) | _seconds(values)
                for key, values in sorted(self.drafts.items())
            ],
        }


def _seconds(values: list[float]) -> dict[str, Any]:
    spread = Spread.of(values)
    assert spread is not None
    return {"num_steps": len(values), "seconds": asdict(spread)}
