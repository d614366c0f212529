"""A training log: the lines of metrics.jsonl as curves over steps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from foretell.errors import DataError
from foretell.reporting.node import MOST, Node, clean
from foretell.reporting.results import TrainingLog

LOSS = re.compile(r"loss(_\d{1,2})?")
SHARE = re.compile(r"(agreement|chained)_\d{1,2}")
"""Curves that are drawn; ``loss_0`` is the trunk's, ``loss_3`` that of depth 3."""
_SUMMARY = ("train_runtime", "train_loss")
"""On the Trainer's own last line."""


def read_log(text: str, file: Path, name: str, problems: list[str]) -> TrainingLog:
    """Curves of loss, agreement and chained agreement. A last line that is not whole, as of a run that still writes, is
    left out and noted.

    Raises DataError, naming the line, for any other that is no object with a step, and where no line has a loss.
    """
    curves: dict[str, list[tuple[float, float]]] = {}
    summary: dict[str, float] = {}
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        values = _object(line)
        if values is None or "step" not in values:
            if number == len(lines) and values is None and not text.endswith("\n"):
                problems.append(f"line {number}: not whole; left out")
                continue
            raise DataError(
                'no JSON object with "step"; give a metrics.jsonl as foretell train writes it', file, number
            )
        node = Node(values, f"line {number}", problems)
        step = node.number("step")
        for key in values if step is not None else ():
            most = 1.0 if SHARE.fullmatch(key) else MOST
            drawn = LOSS.fullmatch(key) or SHARE.fullmatch(key)
            if drawn and (value := node.number(key, at_most=most)) is not None:
                curves.setdefault(clean(key), []).append((step or 0.0, value))
        summary |= {key: value for key in _SUMMARY if (value := node.number(key)) is not None}
    if not curves:
        raise DataError("no line with a loss; let the run reach its first log step", file)
    return TrainingLog(name, {key: sorted(points) for key, points in sorted(curves.items(), key=_order)}, summary)


def _order(item: tuple[str, object]) -> tuple[str, int]:
    kind, _, depth = item[0].partition("_")
    return kind, int(depth) if depth else -1


def _object(line: str) -> dict[str, Any] | None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None
