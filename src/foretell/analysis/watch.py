"""Listening to an engine's steps: the one place where a measurement reaches behind the engine's own face."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretell.decoding.engine import Engine
from foretell.decoding.scheduler import Work
from foretell.decoding.step import StepTimes

OnStep = Callable[[Sequence[Work], Sequence[tuple[int, int]], StepTimes], None]
"""Called after a step with its work, every row's drafted and accepted tokens before it, and its seconds."""


def watch_steps(engine: Engine, on_step: OnStep) -> None:
    """Call ``on_step`` after every step of this engine, when tokens are taken and the policy has learnt."""
    depths = engine._core.depths
    observe = depths.observe

    def observed(works: Sequence[Work], counted: Sequence[tuple[int, int]], times: StepTimes) -> None:
        observe(works, counted, times)
        on_step(works, counted, times)

    depths.observe = observed  # type: ignore[method-assign]
