"""Section: systems side by side, from a compare file."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from foretell.reporting.figure_speedup import limits
from foretell.reporting.figure_systems import over_batches, systems
from foretell.reporting.page import Block, Section, slug
from foretell.reporting.results import Compare
from foretell.reporting.runs import ALL, Run
from foretell.reporting.system_tables import all_prompts, domain_tables, in_order


def compared(compares: Sequence[Compare]) -> list[Section]:
    """A figure a batch size, one against the batch size where there are several, and a table of all prompts and of each
    domain; a system without a run keeps its row.
    """
    blocks: list[Block] = []
    for compare in compares:
        name = compare.bench.name
        runs = [run for run in compare.bench.runs if run.domain == ALL]
        axis = limits(runs)
        for batch in sorted({run.batch for run in runs}):
            bars = [(compare.label_of(r), r) for r in in_order(compare, runs) if r.batch == batch and r.speedup]
            if bars:
                blocks.append(systems(slug(f"systems {name} {batch}"), name, batch, bars, axis))
        lines = _best_chains(compare, runs)
        if len({run.batch for _, part in lines for run in part}) > 1:
            drawn = limits([run for _, part in lines for run in part])
            blocks.append(over_batches(slug(f"systems {name} batches"), name, lines, drawn))
        blocks.append(all_prompts(compare, runs))
        blocks += domain_tables(compare)
    return [Section("Systems side by side", blocks)] if blocks else []


def _best_chains(compare: Compare, runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """Each system's label and runs in one setting, in the order of the file: of the chains measured at most batch
    sizes the one with the highest mean of medians; another setting where it ran no chain.
    """
    own: dict[str | None, list[Run]] = {}
    for run in in_order(compare, runs):
        if run.drafts and run.speedup:
            own.setdefault(run.name, []).append(run)
    names = list(dict.fromkeys(system.name for system in compare.systems))
    found = []
    for name in sorted(own, key=lambda name: names.index(name) if name in names else len(names)):
        settings: dict[str, dict[int, Run]] = {}
        for run in [run for run in own[name] if run.is_chain] or own[name]:
            settings.setdefault(run.label, {})[run.batch] = run
        label, best = max(settings.items(), key=lambda item: (len(item[1]), _mean_median(list(item[1].values()))))
        system = compare.system_of(next(iter(best.values())))
        found.append((f"{system.label if system else name or 'unnamed'}, {label}", list(best.values())))
    return found


def _mean_median(runs: Sequence[Run]) -> float:
    return fmean(run.speedup.median for run in runs if run.speedup)
