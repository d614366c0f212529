"""Verify and probe files, and an adapter's own summary of its training."""

from __future__ import annotations

from foretell.reporting.bench_files import read_differences, read_where
from foretell.reporting.node import Node, clean
from foretell.reporting.proof_results import Control, DepthQuality, Law, ModelLaw, Probe, Served, Stage, Verify
from foretell.reporting.results import Adapter
from foretell.reporting.runs import MAX_DEPTHS, read_depth

_FACTS = {
    "num_steps": "steps",
    "num_train_tokens": "tokens of training text",
    "train_s": "seconds of training",
    "mean_loss": "mean loss",
}


def read_verify(node: Node, name: str) -> Verify:
    """A verify file: greedy equality, controls, the sampling law of a model or of the built-in one, as far as given."""
    greedy, batch = node.node("greedy"), node.node("greedy").node("batch")
    depths = greedy.values.get("depths")
    return Verify(
        name=name,
        passed=node.flag("passed"),
        has_greedy=bool(greedy.values),
        depths=[clean(str(depth)) for depth in depths if isinstance(depth, int | str)]
        if isinstance(depths, list)
        else [],
        num_nodes=greedy.count("num_nodes") or 0,
        exact=bool(greedy.flag("exact")),
        num_prompts=greedy.count("num_prompts"),
        num_texts=greedy.count("num_texts"),
        num_tokens=greedy.count("num_tokens"),
        num_accepted_tokens=greedy.count("num_accepted_tokens"),
        differences=read_differences(greedy, "differences"),
        batch_rows=batch.count("num_rows"),
        batch_texts=batch.count("num_texts"),
        batch_differences=read_differences(batch, "differences"),
        laws=[_law(part) for part in node.nodes("sampling")],
        model_laws=[_model_law(part) for part in node.nodes("model_law")],
        controls=[_control(part) for part in node.nodes("controls")],
        where=read_where(node),
    )


def read_probe(node: Node, name: str) -> Probe:
    """A probe file, made with --data, --served or both."""
    return Probe(
        name=name,
        num_records=node.count("num_records"),
        depths=_depths(node),
        mean_acceptance_length=node.number("mean_acceptance_length"),
        served=_served(served) if (served := node.node("served")).values else None,
        where=read_where(node),
    )


def read_adapter(node: Node, name: str) -> Adapter:
    """What mtp_config.json says of heads and their training; its held-out figures are those of a probe."""
    heads, trunk, training = node.node("heads"), node.node("trunk"), node.node("training")
    facts = {"heads": heads.text("kind"), "trunk": trunk.text("name"), "trunk architecture": trunk.text("architecture")}
    modules, depths = heads.count("num_modules"), heads.count("num_depths")
    facts["modules"] = None if modules is None else str(modules)
    facts["depths"] = None if depths is None else str(depths)
    for key, words in _FACTS.items():
        value = training.number(key)
        facts[words] = None if value is None else f"{value:,.3f}" if key == "mean_loss" else f"{value:,.0f}"
    held_out = training.node("held_out")
    return Adapter(
        name=name,
        facts={words: value for words, value in facts.items() if value is not None},
        probe=read_probe(held_out, name) if held_out.values else None,
    )


def _law(part: Node) -> Law:
    settings = part.node("settings")
    values = {key: settings.number(key) for key in settings.values}
    return Law(
        passed=part.flag("passed"),
        settings=clean(" ".join(f"{key}={value:g}" for key, value in values.items() if value is not None)),
        depth=part.count("depth"),
        num_nodes=part.count("num_nodes") or 0,
        num_samples=part.count("num_samples"),
        total_variation=part.number("total_variation"),
        limit=part.number("limit"),
        acceptance_rate=part.number("acceptance_rate", at_most=1.0),
    )


def _model_law(part: Node) -> ModelLaw:
    return ModelLaw(
        passed=part.flag("passed"),
        depth=read_depth(part),
        num_nodes=part.count("num_nodes") or 0,
        num_samples=part.count("num_samples"),
        distance=part.number("distance", at_most=1.0),
        limit=part.number("limit"),
        num_outside=part.count("num_outside"),
        acceptance_rate=part.number("acceptance_rate", at_most=1.0),
    )


def _control(part: Node) -> Control:
    return Control(
        passed=part.flag("passed"),
        kind=part.text("kind") or "unnamed",
        acceptance=part.number("acceptance", at_most=1.0),
        expected=part.number("expected", at_most=1.0),
        num_texts=part.count("num_texts"),
        differences=read_differences(part, "differences"),
    )


def _served(node: Node) -> Served:
    stages = [
        Stage(
            name=part.text("name") or "unnamed",
            acceptance=part.shares("acceptance")[:MAX_DEPTHS],
            difference=part.number("difference", at_most=1.0),
            agrees=part.flag("agrees"),
            note=part.text("note") or "",
        )
        for part in node.nodes("stages")
    ]
    return Served(
        predicted=node.shares("predicted")[:MAX_DEPTHS],
        served=node.shares("served")[:MAX_DEPTHS],
        num_rounds=node.count("num_rounds"),
        difference=node.number("difference", at_most=1.0),
        first_disagreement=node.text("first_disagreement"),
        stages=stages,
    )


def _depths(node: Node) -> list[DepthQuality]:
    found = []
    for part in node.nodes("depths"):
        depth = part.count("depth")
        if depth is None:
            part.problems.append(f"{part.place}: without depth; left out")
            continue
        shares = [part.number(name, at_most=1.0) for name in ("agreement", "overlap", "chained")]
        found.append(DepthQuality(depth, part.count("num_positions"), *shares))
    return found
