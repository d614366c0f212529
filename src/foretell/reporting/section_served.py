"""Section: acceptance as the heads should give it, beside what was served, and which stage disagrees."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.reporting.figure_shares import by_depth
from foretell.reporting.labels import number, shares
from foretell.reporting.lead import agreement, disagrees
from foretell.reporting.page import ABSENT, Block, Paragraph, Section, Table, slug
from foretell.reporting.proof_results import Probe, Served

_AGREES = {True: "yes", False: "NO", None: "undecided"}


def compared_served(probes: Sequence[Probe]) -> list[Section]:
    """The verdict, a figure, and two tables a file: acceptance by depth, and the stages."""
    blocks: list[Block] = []
    for probe in probes:
        if probe.served is None:
            continue
        served = probe.served
        blocks.append(Paragraph(f"{probe.name}: {agreement(served)}", warns=disagrees(served) is not None))
        lines = {name: line for name, line in (("predicted", served.predicted), ("served", served.served)) if line}
        if lines:
            title = f"Predicted and served acceptance: {probe.name}"
            blocks.append(by_depth(slug(f"served {probe.name}"), title, "accepted up to depth k", lines))
            blocks.append(_depths(probe.name, served))
        if served.stages:
            rows = [
                [stage.name, shares(stage.acceptance), number(stage.difference, 3), _AGREES[stage.agrees]]
                + [stage.note or ABSENT]
                for stage in served.stages
            ]
            columns = ["stage", "acceptance by depth", "largest difference", "agrees", "what was compared"]
            note = "In the order in which they are asked: the first that disagrees is where to look first."
            blocks.append(Table(f"Stages: {probe.name}", columns, rows, 1, [note]))
    return [Section("Predicted and served acceptance", blocks)] if blocks else []


def _depths(name: str, served: Served) -> Table:
    deepest = max(len(served.predicted), len(served.served))
    pairs = [(_at(served.predicted, k), _at(served.served, k)) for k in range(deepest)]
    rows = [[str(k), number(one, 3), number(other, 3)] for k, (one, other) in enumerate(pairs, start=1)]
    notes = [
        "Shares of rounds accepted up to each depth, unconditional. Predicted: walked over the trunk's own answers, "
        f"{number(served.num_rounds, 0)} rounds. Largest difference: {number(served.difference, 3)}.",
    ]
    return Table(f"Served: {name}", ["depth", "predicted", "served"], rows, 1, notes)


def _at(values: Sequence[float | None], place: int) -> float | None:
    return values[place] if place < len(values) else None
