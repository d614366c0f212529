"""Result files that were changed at random give a page or one clear line, never anything else."""

from __future__ import annotations

import copy
import json
import random
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from foretell.errors import ForetellError
from foretell.reporting.files import read_results
from foretell.reporting.html import to_html
from foretell.reporting.markdown import to_markdown
from foretell.reporting.report import build
from tests.reporting import made

STRANGE: list[Any] = [
    None, True, False, 0, -1, 1, 7, 10**9, 10**40, 0.5, -0.0, 1e-300, 1e300, float("nan"), float("inf"), "", "auto",
    "all", "x" * 3000, "_", "$", "\ud800", "\x00", [], {}, [[]], [None, 1, "a"], [{}], {"median": 1},
    {"low": 2, "median": 1, "high": 0},
]  # fmt: skip


def places(values: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything within."""
    found = []
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, inner in list(items):
        found += [(values, key), *places(inner)]
    return found


def mutate(values: Any, source: random.Random) -> Any:
    values = copy.deepcopy(values)
    for _ in range(source.choice([1, 1, 2, 5, 20])):
        found = places(values)
        if not found:
            break
        container, key = source.choice(found)
        if source.random() < 0.4:
            del container[key]
        elif source.random() < 0.1 and isinstance(container, dict):
            container[source.choice(["a", "batch", "depth", "\ud800", "<b>", ""])] = container.pop(key)
        else:
            container[key] = copy.deepcopy(source.choice(STRANGE))
    return values


KINDS = {
    "bench": made.bench((1, 8), differences=[made.difference()]),
    "compare": made.compare(),
    "verify": made.verify(differences=[made.difference("BUG")]),
    "probe": made.probe(),
    "compare batches": made.compare_batches(),
    "verify all": made.verify_all(controls=[made.control("right", 0.9, 1.0, False, differences=[made.difference()])]),
    "served": made.served(),
    "probe served": {**made.probe(), **made.served()},
    "log": [json.loads(line) for line in made.LOG.splitlines()],
    "adapter": {"format_version": 1, "heads": {"kind": "medusa"}, "trunk": {}, "training": {"held_out": made.probe()}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_changed_files(kind: str, tmp_path: Path, undrawn: None) -> None:
    """Everything but the drawing, a hundred times."""
    source, pages = random.Random(kind), 0
    for _ in range(100):
        pages += one(KINDS[kind], source, tmp_path)
    assert pages > 10


@pytest.mark.parametrize("kind", ["bench", "compare batches", "probe", "served", "log"])
def test_changed_files_with_figures(kind: str, tmp_path: Path) -> None:
    source = random.Random(f"{kind} drawn")
    assert sum(one(KINDS[kind], source, tmp_path) for _ in range(3)) > 0


def one(whole: Any, source: random.Random, folder: Path) -> bool:
    """True where it gave a page. ``whole``: the values of a file, or of every line of one."""
    values = mutate(whole, source)
    text = "\n".join(map(json.dumps, values)) if isinstance(whole, list) else json.dumps(values)
    path = made.write(folder, "f.json", text)
    try:
        page = build(read_results([path]), "T", "1")
    except ForetellError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000
        return False
    ET.fromstring(to_html(page).removeprefix("<!DOCTYPE html>\n"))
    to_markdown(page, "f").encode("utf-8")
    return True
