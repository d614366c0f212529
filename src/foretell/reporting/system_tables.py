"""Tables of a compare file: systems side by side over all prompts, and on each domain."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.reporting.labels import joined, megabytes, number, percent, rate, shares, spread
from foretell.reporting.page import ABSENT, Table
from foretell.reporting.results import Compare, System
from foretell.reporting.runs import ALL, Run
from foretell.reporting.section_speed import ACCEPTANCE, LENGTH, SPEEDUP


def in_order(compare: Compare, runs: Sequence[Run]) -> list[Run]:
    """By batch size; in it plain decoding, then systems in the order of the file."""
    names = list(dict.fromkeys(system.name for system in compare.systems))
    return sorted(
        runs,
        key=lambda r: (r.batch, not r.is_plain, names.index(r.name) if r.name in names else len(names), r.order),
    )


def all_prompts(compare: Compare, runs: Sequence[Run]) -> Table:
    """Everything about every system, from its ``runs`` over all prompts."""
    rows = [_row(compare.label_of(run), compare.system_of(run), run) for run in in_order(compare, runs)]
    ran = {run.name for run in runs}
    rows += [_row(system.label, system, None) for system in compare.systems if system.name not in ran]
    columns = [
        "system", "batch", "drafter", "depth", "tokens/s", "speed-up", "ms a token, median / p95", "tokens a pass",
        "drafted", "acceptance by depth", "draft / verify / other", "draft overhead", "extra parameters, M",
        "extra memory, MB", "from",
    ]  # fmt: skip
    notes = [
        SPEEDUP,
        ACCEPTANCE,
        *_length_notes(runs),
        "Draft overhead: seconds of drafting over those of the rest of a step.",
        "Extra: beyond the trunk; MB = 10^6 bytes.",
    ]
    domains = _domains(compare)
    if len(domains) == 1:
        notes.append(f"All prompts are of one domain, {domains[0]}.")
    return Table(f"Systems: {compare.bench.name}, all prompts", columns, rows, 2, notes)


def domain_tables(compare: Compare) -> list[Table]:
    """One a domain; none where a single domain is all prompts, which have a table already."""
    domains, found = _domains(compare), []
    if len(domains) == 1 and any(run.domain == ALL for run in compare.bench.runs):
        return []
    columns = ["system", "batch", "speed-up", "tokens a pass", "drafted", "acceptance by depth"]
    for domain in domains:
        runs = in_order(compare, [run for run in compare.bench.runs if run.domain == domain])
        rows = [
            [compare.label_of(run), str(run.batch), spread(run.speedup), number(run.tokens_a_pass)]
            + [percent(run.share_drafted), shares(run.acceptance_by_depth)]
            for run in runs
        ]
        notes = [SPEEDUP, ACCEPTANCE, *_length_notes(runs)]
        found.append(Table(f"Systems on {domain}: {compare.bench.name}", columns, rows, 2, notes))
    return found


def _domains(compare: Compare) -> list[str]:
    return list(dict.fromkeys(run.domain for run in compare.bench.runs if run.domain != ALL))


def _length_notes(runs: Sequence[Run]) -> list[str]:
    """What "tokens a pass" is here: files from before it was counted have the mean acceptance length only."""
    drafting = [run for run in runs if run.drafts]
    old = [run for run in drafting if run.tokens_per_pass is None and run.mean_acceptance_length is not None]
    if not old:
        notes = ["Tokens a pass: output tokens over all passes of the trunk."]
    elif len(old) == len(drafting):
        notes = [f"{LENGTH} Passes without a draft are left out of it."]
    else:
        named = joined(dict.fromkeys(f"{run.name or run.label} at batch {run.batch}" for run in old))
        notes = [
            "Tokens a pass: output tokens over all passes of the trunk; for "
            f"{named} the file has the mean acceptance length only, which leaves out passes without a draft."
        ]
    return [*notes, "Drafted: share of passes in which anything was drafted."]


def _row(label: str, system: System | None, run: Run | None) -> list[str]:
    """A system that was not measured keeps its row."""
    parameters = megabytes(system.extra_parameters) if system else ABSENT
    source, drafter = (system.source, system.drafter) if system else (None, None)
    memory = system.extra_memory_bytes if system else None
    if run is None:
        return [label, ABSENT, drafter or ABSENT, *[ABSENT] * 9, parameters, megabytes(memory), source or ABSENT]
    depth = ABSENT if run.depth is None else f"{run.depth}" + (f", tree of {run.num_nodes}" if run.num_nodes else "")
    latency = f"{number(run.token_ms_median, 1)} / {number(run.token_ms_p95, 1)}"
    split = " / ".join(percent(run.time_share.get(part)) for part in ("draft", "verify", "other"))
    return [
        label, str(run.batch), run.drafter or drafter or ABSENT, depth, rate(run.tokens_per_s), spread(run.speedup),
        latency if run.token_ms_median is not None else ABSENT, number(run.tokens_a_pass), percent(run.share_drafted),
        shares(run.acceptance_by_depth), split if run.time_share else ABSENT, number(run.draft_overhead, 3), parameters,
        megabytes(memory if run.extra_memory_bytes is None else run.extra_memory_bytes), source or ABSENT,
    ]  # fmt: skip
