"""Sections: how good guesses are on held-out text, and how heads were trained."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.reporting.figure_curves import learning, log_steps
from foretell.reporting.figure_shares import by_depth
from foretell.reporting.labels import number
from foretell.reporting.page import ABSENT, Block, Section, Table, slug
from foretell.reporting.proof_results import Probe
from foretell.reporting.results import Adapter, TrainingLog


def probed(probes: Sequence[Probe]) -> list[Section]:
    """A figure and a table a file."""
    figures: list[Block] = []
    tables: list[Block] = []
    for probe in probes:
        if not probe.depths:
            continue
        by_number = {depth.depth: depth for depth in probe.depths if depth.depth <= 64}
        lines = {
            name: [getattr(by_number.get(k), name, None) for k in range(1, max(by_number, default=0) + 1)]
            for name in ("agreement", "overlap", "chained")
        }
        lines = {name: values for name, values in lines.items() if any(value is not None for value in values)}
        if lines:
            title = f"Guesses on held-out text: {probe.name}"
            figures.append(by_depth(slug(f"probe {probe.name}"), title, "share of positions", lines))
        rows = [
            [
                str(d.depth),
                number(d.num_positions, 0),
                number(d.agreement, 3),
                number(d.overlap, 3),
                number(d.chained, 3),
            ]
            for d in probe.depths
        ]
        notes = [
            "Agreement: the guess is the trunk's likeliest token. Overlap: mean of sum min(p, q), what sampling at "
            "temperature 1 would accept. Chained: depths 1 to k all right, what greedy decoding would accept.",
            "Mean acceptance length to expect, the trunk's own token included: "
            f"{number(probe.mean_acceptance_length)}.",
        ]
        columns = ["depth", "positions", "agreement", "overlap", "chained"]
        tables.append(Table(f"Probe: {probe.name}", columns, rows, 1, notes))
    return [Section("Guesses on held-out text", [*figures, *tables])] if tables else []


def trained(adapters: Sequence[Adapter], logs: Sequence[TrainingLog]) -> list[Section]:
    """What adapters say of their training, and the curves of every log."""
    blocks: list[Block] = []
    keys = list(dict.fromkeys(key for adapter in adapters for key in adapter.facts))
    if keys:
        rows = [[key, *(adapter.facts.get(key, ABSENT) for adapter in adapters)] for key in keys]
        blocks.append(Table("Heads and their training", ["", *(adapter.name for adapter in adapters)], rows))
    blocks += [learning(slug(f"learning {log.name}"), log) for log in logs]
    names = list(dict.fromkeys(name for log in logs for name in log.curves))
    if logs:
        rows = [
            [
                log.name,
                f"{log_steps(log):,.0f}",
                *(_last(log, name) for name in names),
                number(log.summary.get("train_runtime"), 0),
            ]
            for log in logs
        ]
        columns = ["run", "steps", *(name.replace("_", " ") for name in names), "seconds"]
        notes = [
            "At the last log step that has them. Loss: in nats a token, of the whole objective; loss 0 of the trunk, "
            "loss k of depth k. Agreement k: share of guesses right; chained k: of positions with depths 1 to k all "
            "right.",
        ]
        blocks.append(Table("Where training ended", columns, rows, 1, notes))
    return [Section("Learning curves" if logs else "Training", blocks)] if blocks else []


def _last(log: TrainingLog, name: str) -> str:
    points = log.curves.get(name)
    return number(points[-1][1], 3) if points else ABSENT
