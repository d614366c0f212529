"""Bench: all systems on the same prompts in one alternating run, so that every speed-up is a paired ratio.

For each repeat and prompt, every system decodes the prompt once, and the order is rotated each time: a machine that
slows down for a while slows all of them down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from foretell.analysis.lossless import Difference, explain
from foretell.analysis.summary import Record, RunSummary, best_run, summarise
from foretell.analysis.systems import EngineSystem, TransformersSystem
from foretell.analysis.texts import BenchPrompt
from foretell.decoding.drafter_config import DrafterConfig
from foretell.models.mtp_model import MTPModel

_WARM_UP_TOKENS = 8


@dataclass
class BenchReport:
    """Summaries per system, depth and domain ("all" first), and every output of ours that was not depth 0's.

    ``num_reference_differences``: prompts where transformers wrote something else than depth 0.
    """

    runs: list[RunSummary]
    differences: list[Difference]
    num_reference_differences: int
    records: list[Record] = field(repr=False)

    @property
    def best_depth(self) -> int:
        """Depth with the highest median speed-up over all prompts; 0 where drafting loses."""
        return best_run(self.runs).depth

    @property
    def passed(self) -> bool:
        """True where every difference is a near tie."""
        return all(d.verdict == "near tie" for d in self.differences)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a bench file (the caller adds ``environment``)."""
        return {
            "runs": [run.as_dict() for run in self.runs],
            "best_depth": self.best_depth,
            "differences": [asdict(difference) for difference in self.differences],
            "num_reference_differences": self.num_reference_differences,
        }


def run_bench(
    model: MTPModel,
    prompts: Sequence[BenchPrompt],
    depths: Sequence[int],
    max_tokens: int,
    repeats: int = 1,
    reference: TransformersSystem | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    drafter: DrafterConfig | None = None,
) -> BenchReport:
    """Measure every depth (0 is always among them) and the reference. ``on_progress(num_done, num_total)``.

    ``drafter`` as for Engine.
    """
    systems: list[EngineSystem | TransformersSystem] = [
        EngineSystem(model, depth, drafter) for depth in sorted({0, *depths})
    ]
    if reference is not None:
        systems.append(reference)
    for system in systems:
        system.run(prompts[0].token_ids, min(max_tokens, _WARM_UP_TOKENS))
    records: list[Record] = []
    num_total = len(prompts) * repeats * len(systems)
    for repeat in range(repeats):
        for index, prompt in enumerate(prompts):
            shift = (repeat + index) % len(systems)
            for system in systems[shift:] + systems[:shift]:
                sample = system.run(prompt.token_ids, max_tokens)
                records.append(Record(system.name, system.depth, index, repeat, prompt.domain, sample))
                if on_progress:
                    on_progress(len(records), num_total)
    config = DrafterConfig.resolve(drafter, model)
    dtype = str(model.trunk.dtype).removeprefix("torch.")
    differing = _differing(records)
    plain = {r.prompt: r.sample.token_ids for r in records if r.is_plain}
    explained = [
        explain(model.trunk, prompts[r.prompt], plain[r.prompt], r.sample.token_ids, r.prompt, r.depth)
        for r in differing
        if r.system == "foretell"
    ]
    return BenchReport(
        summarise(records, dtype, None if config is None else config.kind),
        explained,
        len(differing) - len(explained),
        records,
    )


def _differing(records: Sequence[Record]) -> list[Record]:
    """One record for every system, depth and prompt whose ids are not depth 0's."""
    plain = {r.prompt: r.sample.token_ids for r in records if r.is_plain}
    found = {(r.system, r.depth, r.prompt): r for r in reversed(records) if r.sample.token_ids != plain[r.prompt]}
    return [found[key] for key in sorted(found)]
