"""Our engine on many requests at a time, and what is measured of it, and of others (`batch_references`).

A group of prompts is handed over at once, and at most ``batch`` of them are decoded at a time. The clock runs from the
start to the group's last token, prompts included. A request's own clock starts when there is a place in the batch for
it, so that its prompt is in its time and the queue is not; it stops when its text is handed out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from foretell.analysis.records import Setting
from foretell.analysis.step_costs import StepCosts
from foretell.analysis.systems import times_since
from foretell.analysis.texts import MIXED, PromptGroup
from foretell.config import SamplingParams
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.decoding.step import StepTimes
from foretell.models.mtp_model import MTPModel
from foretell.types import AcceptanceStats, Completion, Depth


@dataclass
class GroupSample:
    """One group decoded once by one system.

    ``seconds``: from the start to the last token of the last text, prompts included. ``request_s``: each request's own
    seconds. ``times``: the steps in which no prompt was read.
    """

    texts: list[list[int]]
    seconds: float
    request_s: list[float]
    times: StepTimes = field(default_factory=StepTimes)
    prefill_s: float = 0.0
    stats: AcceptanceStats = field(default_factory=AcceptanceStats)
    drafter_num_bytes: int = 0
    num_passes: int = 0

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Output tokens of the whole group over its seconds."""
        return sum(map(len, self.texts)) / self.seconds if self.seconds > 0 else None

    @property
    def request_tokens_per_s(self) -> list[float]:
        """Each request's output tokens over its own seconds."""
        return [len(text) / s for text, s in zip(self.texts, self.request_s, strict=True) if s > 0]


class EngineBatch:
    """Our engine with ``batch`` places. It keeps the engine, see ``EngineSystem``.

    The policy is told a group's domain as its request class; a mixed group has none.
    """

    def __init__(
        self,
        model: MTPModel,
        batch: int,
        depth: Depth,
        drafter: DrafterConfig | None = None,
        num_nodes: int = 0,
        costs: StepCosts | None = None,
    ) -> None:
        self.setting = Setting("foretell", depth, num_nodes)
        self._engine = Engine(model, max_batch=batch, drafter=drafter, reuse_prefixes=False)
        self._engine.check_depth(depth, num_nodes)
        if costs is not None:
            costs.watch(self._engine)

    def run(self, group: PromptGroup, max_tokens: int) -> GroupSample:
        """Greedy. Requests are let in in their order, one for each that ends."""
        engine, setting = self._engine, self.setting
        before, read_before = replace(engine.decode_times), replace(engine.prefill_times)
        ends = [0.0] * len(group.prompts)
        start = time.perf_counter()

        def on_finish(index: int, _: Completion) -> None:
            ends[index] = time.perf_counter() - start

        done = engine.generate(
            [prompt.token_ids for prompt in group.prompts],
            SamplingParams(max_tokens=max_tokens),
            setting.depth,
            on_finish,
            setting.num_nodes,
            "" if group.domain == MIXED else group.domain,
        )
        return GroupSample(
            [completion.token_ids for completion in done],
            max(ends),
            own_seconds(ends, engine.max_batch),
            times_since(engine.decode_times, before),
            times_since(engine.prefill_times, read_before).total_s,
            AcceptanceStats.total(completion.stats for completion in done),
            engine.drafter_num_bytes,
            sum(completion.num_rounds for completion in done),
        )


def own_seconds(ends: list[float], batch: int) -> list[float]:
    """Each request's seconds in the batch: the first ``batch`` start at 0, then one wherever one ends."""
    starts = [0.0] * batch + sorted(ends)
    return [end - start for end, start in zip(ends, starts, strict=False)]
