"""Section: what a step of every system of a compare file costs, where it drafts in full."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.reporting.labels import number
from foretell.reporting.page import ABSENT, Section, Table
from foretell.reporting.results import Compare, StepCost
from foretell.reporting.runs import ALL, Run
from foretell.reporting.section_steps import FEWEST_STEPS, is_plain
from foretell.reporting.system_tables import in_order

PLAIN = "plain"
"""Name of plain decoding among the costs."""
_COLUMNS = ["system", "batch", "nodes a row", "passes", "ms", "c(n)", "drafting, ms", "over a plain pass"]


def system_costs(compares: Sequence[Compare]) -> list[Section]:
    """A table a file: pass and draft of steps in which every place was in use and drafted what the setting allows."""
    tables = [_table(compare, rows) for compare in compares if (rows := _rows(compare))]
    return [Section("Cost of a step, by system", list(tables))] if tables else []


def _rows(compare: Compare) -> list[list[str]]:
    plain = {c.batch: c for c in compare.costs.get(PLAIN, ([], []))[0] if is_plain(c) and c.seconds.median > 0}
    rows = [["plain", str(c.batch), "1", str(c.num_steps), _ms(c), "1.00", ABSENT, ABSENT] for c in plain.values()]
    for run in in_order(compare, [run for run in compare.bench.runs if run.domain == ALL and run.drafts]):
        base, costs = plain.get(run.batch), compare.costs.get(run.name or "")
        if base is None or costs is None or not isinstance(run.depth, int):
            continue
        passes, drafts = costs
        nodes = run.num_nodes or run.depth
        own = _seen(passes, run, run.batch * (1 + nodes))
        if own is None:
            continue
        draft = _seen([d for d in drafts if d.depth == run.depth], run, run.batch * nodes)
        cells = [compare.label_of(run), str(run.batch), str(1 + nodes), str(own.num_steps), _ms(own), _over(own, base)]
        rows.append([*cells, *([_ms(draft), _over(draft, base)] if draft else [ABSENT, ABSENT])])
    return sorted(rows, key=lambda row: int(row[1]))


def _seen(cells: Sequence[StepCost], run: Run, nodes: int) -> StepCost | None:
    own = [c for c in cells if c.batch == c.rows == run.batch and c.nodes == nodes and c.num_steps >= FEWEST_STEPS]
    return next(iter(own), None)


def _ms(cost: StepCost) -> str:
    return number(1000 * cost.seconds.median, 1)


def _over(cost: StepCost, plain: StepCost) -> str:
    return number(cost.seconds.median / plain.seconds.median)


def _table(compare: Compare, rows: list[list[str]]) -> Table:
    notes = [
        "c(n): median time of a pass over all drafted nodes, and of everything behind it, keeping the drafter's states "
        "among it, over plain decoding's at the same batch size. Drafting: median time, and over the same.",
        f"Steps with every place in use and drafts in full, seen {FEWEST_STEPS} times or more; settings without such "
        "steps are left out, and so is auto.",
    ]
    return Table(f"Cost of a step by system: {compare.bench.name}", _COLUMNS, rows, 1, notes)
