"""Eval files: what ``foretell eval`` wrote with --json, read back."""

from __future__ import annotations

from foretell.reporting.bench_files import read_where
from foretell.reporting.eval_results import Decoded, DepthBits, Eval, Parsed, Score, TextBits, Texts
from foretell.reporting.node import MOST, Node, clean
from foretell.reporting.runs import MAX_DEPTHS, read_depth

PARTS = ("text", "tasks", "parse")
"""Keys of the three measurements."""


def read_eval(node: Node, name: str) -> Eval:
    """An eval file with any of its three parts."""
    tasks, parse = node.node("tasks"), node.node("parse")
    spent = tasks.nodes("speculation") + ([parse.node("speculation")] if parse.node("speculation").values else [])
    return Eval(
        name=name,
        model=node.text("model"),
        heads=node.text("heads"),
        depth=read_depth(node),
        batch=node.count("batch"),
        texts=_texts(text) if (text := node.node("text")).values else None,
        scores=_scores(tasks),
        parsed=_parsed(parse) if parse.values else None,
        decoded=[_decoded(part) for part in spent],
        warnings=node.texts("warnings"),
        where=read_where(node),
        incomplete=bool(node.flag("incomplete")),
    )


def _texts(node: Node) -> Texts:
    files = [_text(part) for part in node.nodes("files")]
    return Texts(node.count("window"), node.count("stride"), files, _text(node.node("all")))


def _text(node: Node) -> TextBits:
    depths = []
    for part in node.nodes("depths")[: MAX_DEPTHS + 1]:
        depth = part.count("depth")
        if depth is None:
            part.problems.append(f"{part.place}: without depth; left out")
            continue
        depths.append(
            DepthBits(
                depth=depth,
                num_targets=part.count("num_targets"),
                coverage=part.number("coverage", at_most=1.0),
                bits_per_token=part.number("bits_per_token"),
                bits_per_byte=part.number("bits_per_byte"),
            )
        )
    return TextBits(
        file=node.text("file") or "unnamed",
        num_bytes=node.count("num_bytes"),
        num_tokens=node.count("num_tokens"),
        keeps_text=node.flag("keeps_text"),
        depths=depths,
    )


def _scores(tasks: Node) -> list[Score]:
    """Tasks first, then groups of them. lm-eval names a value "metric,filter", its error "metric_stderr,filter"."""
    results, groups = tasks.node("results"), tasks.node("groups")
    found = [score for task in results.values for score in _scores_of(tasks, results, task)]
    return found + [s for task in groups.values if task not in results.values for s in _scores_of(tasks, groups, task)]


def _scores_of(tasks: Node, results: Node, task: str) -> list[Score]:
    own = results.node(task)
    better, size = tasks.node("higher_is_better").node(task), tasks.node("n-samples").node(task)
    found = []
    for key in own.values:
        metric, comma, taken = key.partition(",")
        if not comma or metric.endswith("_stderr"):
            continue
        error = f"{metric}_stderr,{taken}"
        # A metric without an error has "N/A" there.
        has_error = not isinstance(own.values.get(error), str)
        found.append(
            Score(
                task=clean(task),
                version=_version(tasks.node("versions"), task),
                num_examples=tasks.node("n-shot").count(task),
                num_documents=size.count("effective"),
                filter=clean(taken),
                metric=clean(metric),
                higher_is_better=better.flag(metric),
                value=own.number(key, at_least=-MOST),
                error=own.number(error) if has_error else None,
            )
        )
    return found


def _version(versions: Node, task: str) -> str:
    """A number or a text, whatever the task's author liked."""
    value = versions.values.get(task)
    return versions.text(task) or "" if isinstance(value, str) else "" if value is None else f"{value!s:.20}"


def _decoded(node: Node) -> Decoded:
    return Decoded(
        name=node.text("name") or "unnamed",
        num_requests=node.count("num_requests"),
        num_tokens=node.count("num_tokens"),
        tokens_per_s=node.number("tokens_per_s"),
        mean_acceptance_length=node.number("mean_acceptance_length"),
        acceptance_by_depth=node.shares("acceptance_by_depth")[:MAX_DEPTHS],
    )


def _parsed(node: Node) -> Parsed:
    return Parsed(
        language=node.text("language") or "unnamed",
        max_tokens=node.count("max_tokens"),
        num_outputs=node.count("num_outputs"),
        num_parsed=node.count("num_parsed"),
        num_failed=node.count("num_failed"),
        num_empty=node.count("num_empty"),
        num_cut_off=node.count("num_cut_off"),
        num_context_full=node.count("num_context_full"),
        share=node.number("share", at_most=1.0),
    )
