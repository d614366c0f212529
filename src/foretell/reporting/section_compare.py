"""Section: systems side by side, from a compare file."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.reporting.figure_speedup import limits
from foretell.reporting.figure_systems import systems
from foretell.reporting.labels import megabytes, number, percent, rate, shares, spread
from foretell.reporting.page import ABSENT, Block, Section, Table, slug
from foretell.reporting.results import Compare, System
from foretell.reporting.runs import ALL, Run
from foretell.reporting.section_speed import ACCEPTANCE, LENGTH, SPEEDUP


def compared(compares: Sequence[Compare]) -> list[Section]:
    """A figure a batch size, and one table a file, over all prompts; a system without a run keeps its row."""
    blocks: list[Block] = []
    for compare in compares:
        runs = [run for run in compare.bench.runs if run.domain == ALL]
        axis = limits(runs)
        for batch in sorted({run.batch for run in runs}):
            bars = [(compare.label_of(r), r) for r in _in_order(compare, runs) if r.batch == batch and r.speedup]
            if bars:
                blocks.append(
                    systems(slug(f"systems {compare.bench.name} {batch}"), compare.bench.name, batch, bars, axis)
                )
        blocks.append(_table(compare, runs))
    return [Section("Systems side by side", blocks)] if blocks else []


def _in_order(compare: Compare, runs: Sequence[Run]) -> list[Run]:
    """By batch size; in it plain decoding, then systems in the order of the file."""
    names = list(dict.fromkeys(system.name for system in compare.systems))
    return sorted(
        runs,
        key=lambda r: (r.batch, not r.is_plain, names.index(r.name) if r.name in names else len(names), r.order),
    )


def _table(compare: Compare, runs: Sequence[Run]) -> Table:
    rows = [_row(compare.label_of(run), compare.system_of(run), run) for run in _in_order(compare, runs)]
    ran = {run.name for run in runs}
    rows += [_row(system.label, system, None) for system in compare.systems if system.name not in ran]
    columns = [
        "system", "batch", "drafter", "depth", "tokens/s", "speed-up", "ms a token, median / p95", "tokens a pass",
        "acceptance by depth", "draft / verify / other", "draft overhead", "extra parameters, M", "extra memory, MB",
        "from",
    ]  # fmt: skip
    notes = [
        SPEEDUP,
        ACCEPTANCE,
        LENGTH,
        "Draft overhead: seconds of drafting over those of the rest of a step.",
        "Extra: beyond the trunk; MB = 10^6 bytes.",
    ]
    return Table(f"Systems: {compare.bench.name}, all prompts", columns, rows, 2, notes)


def _row(label: str, system: System | None, run: Run | None) -> list[str]:
    """A system that was not measured keeps its row."""
    parameters = megabytes(system.extra_parameters) if system else ABSENT
    source, drafter = (system.source, system.drafter) if system else (None, None)
    memory = system.extra_memory_bytes if system else None
    if run is None:
        return [label, ABSENT, drafter or ABSENT, *[ABSENT] * 8, parameters, megabytes(memory), source or ABSENT]
    depth = ABSENT if run.depth is None else f"{run.depth}" + (f", tree of {run.num_nodes}" if run.num_nodes else "")
    latency = f"{number(run.token_ms_median, 1)} / {number(run.token_ms_p95, 1)}"
    split = " / ".join(percent(run.time_share.get(part)) for part in ("draft", "verify", "other"))
    return [
        label, str(run.batch), run.drafter or drafter or ABSENT, depth, rate(run.tokens_per_s), spread(run.speedup),
        latency if run.token_ms_median is not None else ABSENT, number(run.mean_acceptance_length),
        shares(run.acceptance_by_depth), split if run.time_share else ABSENT, number(run.draft_overhead, 3), parameters,
        megabytes(memory if run.extra_memory_bytes is None else run.extra_memory_bytes), source or ABSENT,
    ]  # fmt: skip
