"""Bench: all systems on the same prompts in one alternating run, so that every speed-up is a paired ratio.

For each repeat and prompt, every system decodes the prompt once, and the order is rotated each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from foretell.analysis.bench_report import BenchReport, ColdStart, first_texts, unequal_texts
from foretell.analysis.lossless import explain
from foretell.analysis.records import Record, Setting, turns
from foretell.analysis.step_costs import StepCosts
from foretell.analysis.stopped import kept, of_turns, whole_turns
from foretell.analysis.summary import summarise
from foretell.analysis.systems import EngineSystem, Sample, TransformersSystem
from foretell.analysis.texts import BenchPrompt
from foretell.decoding.drafter_config import DrafterConfig
from foretell.errors import UsageError
from foretell.models.mtp_model import MTPModel
from foretell.types import Depth

_WARM_UP_TOKENS = 8


def run_bench(
    model: MTPModel,
    prompts: Sequence[BenchPrompt],
    depths: Sequence[Depth],
    max_tokens: int,
    repeats: int = 1,
    reference: TransformersSystem | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    drafter: DrafterConfig | None = None,
    nodes: Sequence[int] = (),
    costs: StepCosts | None = None,
    on_stop: Callable[[BenchReport], None] | None = None,
) -> BenchReport:
    """Measure every depth (0 is always among them) and the reference, one prompt at a time and without prefill.

    ``drafter`` as for Engine. ``nodes``: see ``settings_of``. ``costs`` collects what steps cost.
    ``on_progress(num_done, num_total)``. A few tokens warm every system up; where "auto" is among the depths, the whole
    first prompt, and what the policy's first text gave is reported as its cold start.
    ``on_stop`` gets the report of what was measured where an exception, Ctrl-C too, ends the run (see `stopped`).
    """
    settings = settings_of(model, depths, nodes, drafter)
    systems: list[EngineSystem | TransformersSystem] = [
        EngineSystem(model, setting.depth, drafter, setting.num_nodes, costs) for setting in settings
    ]
    if reference is not None:
        systems.append(reference)
    first = prompts[0]
    num_warm = max_tokens if "auto" in depths else min(max_tokens, _WARM_UP_TOKENS)
    warm_up: dict[Setting, Sample] = {}
    with costs.paused() if costs else nullcontext():
        for system in systems:
            warm_up[system.setting] = system.run(first.token_ids, num_warm, first.domain)
    records: list[Record[Sample]] = []
    num_total = len(prompts) * repeats * len(systems)
    cold_start = ColdStart.of(warm_up, f"{first.domain}, 1 prompt", [0])

    def stopped(with_summaries: bool) -> BenchReport:
        whole = of_turns(records, whole_turns(records, len(systems)) if with_summaries else set())
        made = make_report(model, prompts, whole, drafter, 1, cold_start)
        return replace(made, records=list(records), num_planned=num_total)

    with kept(on_stop, stopped):
        for repeat, index, system in turns(systems, len(prompts), repeats):
            prompt, setting = prompts[index], system.setting
            sample = system.run(prompt.token_ids, max_tokens, prompt.domain)
            place = (setting.system, setting.depth, index, repeat, prompt.domain)
            records.append(Record(*place, sample, setting.num_nodes))
            if on_progress:
                on_progress(len(records), num_total)
        return make_report(model, prompts, records, drafter, 1, cold_start)


def settings_of(
    model: MTPModel, depths: Sequence[Depth], nodes: Sequence[int], drafter: DrafterConfig | None
) -> list[Setting]:
    """What is measured: depth 0, every depth as a chain, and for each of ``nodes`` a tree of so many nodes at every
    depth below it; beside it the chain that drafts as many, or as many as the drafter can. "auto" is measured with
    chains alone, and with each of ``nodes`` as its budget.

    Raises UsageError where a number of nodes makes no tree.
    """
    config = DrafterConfig.resolve(drafter, model)
    limit = None if config is None else config.max_depth(model)
    chains = {0, *[depth for depth in depths if depth != "auto"]}
    trees = [Setting("foretell", depth, n) for n in dict.fromkeys(nodes) for depth in chains if 0 < depth < n]
    if nodes and config is not None and config.kind == "ngram":
        raise UsageError("look-up (ngram) drafts chains; leave the nodes out, or give another drafter")
    for n in nodes:
        if not any(tree.num_nodes == n for tree in trees) and not ("auto" in depths and n > 1):
            at = ", ".join(map(str, sorted(chains)))
            raise UsageError(
                f"{n} nodes at depths {at} are no tree, which has more nodes than it is deep; give a depth from 1 to "
                f"{max(1, n - 1)} and at least 2 nodes"
            )
    chains |= {n if limit is None else min(n, limit) for n in nodes}
    auto = [Setting("foretell", "auto", n) for n in (0, *dict.fromkeys(nodes))] if "auto" in depths else []
    return sorted([*[Setting("foretell", depth) for depth in chains], *trees, *auto], key=lambda s: s.order)


def make_report(
    model: MTPModel,
    prompts: Sequence[BenchPrompt],
    records: Sequence[Record[Any]],
    drafter: DrafterConfig | None,
    batch: int,
    cold_start: ColdStart | None,
    groups: Sequence[Sequence[int]] | None = None,
    notes: Sequence[str] = (),
) -> BenchReport:
    """Summaries, and every text that is not depth 0's, explained. ``groups``: the prompts of each record's group."""
    members = [[index] for index in range(len(prompts))] if groups is None else groups
    plain = first_texts([r for r in records if r.is_plain], members)
    unequal = unequal_texts(records, members, plain)
    explained = [
        explain(model.trunk, prompts[index], plain[index], text, index, setting.depth, batch)
        for (setting, index), text in unequal.items()
        if setting.system == "foretell"
    ]
    other = [setting.system for setting, _ in unequal if setting.system != "foretell"]
    config = DrafterConfig.resolve(drafter, model)
    dtype = model.trunk.dtype_name
    return BenchReport(
        summarise(records, dtype, None if config is None else config.kind, batch),
        explained,
        {system: other.count(system) for system in dict.fromkeys(r.system for r in records) if system != "foretell"},
        list(records),
        batch,
        cold_start,
        plain,
        list(notes),
        prompt_tokens=[[len(prompts[index].token_ids) for index in group] for group in members],
    )
