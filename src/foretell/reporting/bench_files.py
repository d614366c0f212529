"""Bench and compare files: what analysis.summary, records and step_costs wrote, read back."""

from __future__ import annotations

from foretell.reporting.node import Node, clean
from foretell.reporting.proof_results import Difference, Where
from foretell.reporting.results import Bench, Compare, StepCost, System
from foretell.reporting.runs import read_depth, read_run

_ENVIRONMENT = ("date", "cpu", "gpu", "cores", "threads", "dtype", "torch", "transformers", "foretell", "commit")


def read_bench(node: Node, name: str) -> Bench:
    """A bench file; runs that do not say what they measured are left out, with a line in the node's ``problems``."""
    where, costs = read_where(node), node.node("step_costs")
    batches = {batch: part for part in node.nodes("batches") if (batch := part.count("batch")) is not None}
    return Bench(
        name=name,
        environment=where.environment,
        command=where.command,
        load_note=where.load_note,
        runs=[run for part in node.nodes("runs") if (run := read_run(part)) is not None],
        passes=_costs(costs, "pass"),
        drafts=_costs(costs, "draft"),
        differences=read_differences(node, "differences"),
        unlike={batch: _counts(part.node("num_texts_unlike_depth_0")) for batch, part in batches.items()},
        notes=[f"batch {batch}: {note}" for batch, part in batches.items() for note in part.texts("notes")],
        warnings=[text for text in node.texts("warnings") if text != where.load_note],  # that one has its place
        incomplete=bool(node.flag("incomplete")),
        stopped={
            batch: (made, planned)
            for batch, part in batches.items()
            if (made := part.count("num_measured")) is not None and (planned := part.count("num_planned")) is not None
        },
    )


def read_compare(node: Node, name: str) -> Compare:
    """A compare file; its runs name a system each."""
    systems = []
    for part in node.nodes("systems"):
        system = part.text("name")
        if system is None:
            part.problems.append(f"{part.place}: a system without name; left out")
            continue
        systems.append(
            System(
                name=system,
                label=part.text("label") or system,
                drafter=part.text("drafter"),
                source=part.text("source") or part.text("heads"),
                depth=read_depth(part),
                num_nodes=part.count("num_nodes") or 0,
                extra_parameters=part.number("extra_parameters"),
                extra_memory_bytes=part.number("extra_memory_bytes"),
            )
        )
    by_system = node.node("step_costs")
    costs = {
        clean(key): (_costs(by_system.node(key), "pass"), _costs(by_system.node(key), "draft"))
        for key, value in by_system.values.items()
        if isinstance(value, dict)
    }
    return Compare(read_bench(node, name), systems, costs)


def read_where(node: Node) -> Where:
    """A file's ``environment``; empty where it has none."""
    where = node.node("environment")
    return Where(
        environment={key: value for key in _ENVIRONMENT if (value := _fact(where, key)) is not None},
        command=where.text("command"),
        load_note=where.node("load").text("note"),
    )


def read_differences(node: Node, name: str) -> list[Difference]:
    """Texts that parted from the ones they should equal."""
    found = []
    for part in node.nodes(name):
        found.append(
            Difference(
                verdict=part.text("verdict") or "not judged",
                prompt=part.count("prompt"),
                domain=part.text("domain"),
                depth=_setting(part),
                position=part.count("position"),
                expected_text=part.text("expected_text") or "",
                got_text=part.text("got_text") or "",
                gap=part.number("gap"),
                limit=part.number("limit"),
                batch=part.count("batch") or 0,
                system=part.text("name"),
                cause=part.text("cause") or None,
            )
        )
    return found


def _setting(part: Node) -> str:
    depth, num_nodes = read_depth(part), part.count("num_nodes")
    return "-" if depth is None else f"{depth}, tree of {num_nodes}" if num_nodes else str(depth)


def _fact(where: Node, key: str) -> str | None:
    if key in ("cores", "threads"):
        number = where.count(key)
        return None if number is None else str(number)
    return where.text(key)


def _counts(node: Node) -> dict[str, int]:
    return {clean(key): count for key in node.values if (count := node.count(key)) is not None}


def _costs(node: Node, name: str) -> list[StepCost]:
    found = []
    for part in node.nodes(name):
        batch, rows, nodes = part.count("batch"), part.count("rows"), part.count("nodes")
        steps, seconds = part.count("num_steps"), part.spread("seconds")
        if batch is None or rows is None or nodes is None or steps is None or seconds is None:
            part.problems.append(f"{part.place}: without batch, rows, nodes, num_steps or seconds; left out")
            continue
        found.append(StepCost(batch, rows, nodes, part.count("depth"), steps, seconds))
    return found
