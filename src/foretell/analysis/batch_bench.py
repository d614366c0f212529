"""Batch bench: groups of prompts through systems that decode many requests at a time, in turns as in ``bench``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

from foretell.analysis.batch_references import CannotRun, GenerateBatch, GenerateBatches
from foretell.analysis.batch_systems import EngineBatch, GroupSample
from foretell.analysis.bench import make_report, settings_of
from foretell.analysis.bench_report import BenchReport, ColdStart
from foretell.analysis.records import Record, Setting, turns
from foretell.analysis.step_costs import StepCosts
from foretell.analysis.stopped import kept, of_turns, whole_turns
from foretell.analysis.texts import BenchPrompt, groups_of
from foretell.decoding.drafter_config import DrafterConfig
from foretell.models.mtp_model import MTPModel
from foretell.types import Depth

_WARM_UP_TOKENS = 8


def run_batch_bench(
    model: MTPModel,
    prompts: Sequence[BenchPrompt],
    batch: int,
    depths: Sequence[Depth],
    max_tokens: int,
    repeats: int = 1,
    reference: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
    drafter: DrafterConfig | None = None,
    nodes: Sequence[int] = (),
    costs: StepCosts | None = None,
    on_stop: Callable[[BenchReport], None] | None = None,
) -> BenchReport:
    """Measure ``batch`` requests at a time, prompts included; depth 0 is always among the depths.

    Groups: see ``groups_of``. ``reference``: generate and generate_batch of transformers too; one that cannot run here
    is left out, and a note says why. The first group warms every system up: a few tokens of it, or all where "auto" is
    among the depths, and what the policy's engine gave on it, its first, is reported as its cold start. See
    ``run_bench`` for the rest.
    """
    groups = groups_of(prompts, batch)
    settings = settings_of(model, depths, nodes, drafter)
    systems: list[EngineBatch | GenerateBatches | GenerateBatch] = [
        EngineBatch(model, batch, setting.depth, drafter, setting.num_nodes, costs) for setting in settings
    ]
    if reference:
        systems += [GenerateBatches(model.trunk, batch), GenerateBatch(model.trunk, batch)]
    num_warm = max_tokens if "auto" in depths else min(max_tokens, _WARM_UP_TOKENS)
    warm_up: dict[Setting, GroupSample] = {}
    failed: dict[Setting, str] = {}
    with costs.paused() if costs else nullcontext():
        for system in systems:
            try:
                warm_up[system.setting] = system.run(groups[0], num_warm)
            except CannotRun as error:
                failed[system.setting] = str(error)
    systems = [system for system in systems if system.setting not in failed]
    records: list[Record[GroupSample]] = []
    num_done, num_total = 0, len(groups) * repeats * len(systems)
    cold_start = ColdStart.of(warm_up, groups[0].name, groups[0].indices)

    def report(measured: Sequence[Record[GroupSample]]) -> BenchReport:
        notes = [f"{setting.system} at batch {batch} is left out: {_one_line(why)}" for setting, why in failed.items()]
        if max(len(group.indices) for group in groups) <= batch:
            notes.append(
                f"at batch {batch} no group has more prompts than there are places, so no request joined while others "
                f"decoded; give {2 * batch} prompts of each domain"
            )
        return make_report(
            model, prompts, measured, drafter, batch, cold_start, [group.indices for group in groups], notes
        )

    def able() -> list[Record[GroupSample]]:
        return [record for record in records if record.setting not in failed]

    def stopped(with_summaries: bool) -> BenchReport:
        num_able = sum(system.setting not in failed for system in systems)
        whole = of_turns(able(), whole_turns(able(), num_able) if with_summaries else set())
        return replace(report(whole), records=able(), num_planned=num_total)

    with kept(on_stop, stopped):
        for repeat, index, system in turns(systems, len(groups), repeats):
            setting, domain = system.setting, groups[index].domain
            num_done += 1
            if setting not in failed:
                try:
                    sample = system.run(groups[index], max_tokens)
                except CannotRun as error:
                    failed[setting] = str(error)
                    continue
                place = (setting.system, setting.depth, index, repeat, domain)
                records.append(Record(*place, sample, setting.num_nodes))
            if on_progress:
                on_progress(num_done, num_total)
        return report(able())


def _one_line(text: str) -> str:
    return " ".join(text.split())
