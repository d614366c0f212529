"""A machine that was measured, back from the file that ``plan --measure --json`` wrote; every value checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.checkpoints.files import read_json
from foretell.errors import DataError
from foretell.planning.fields import LEAST_TIME, an_object, count, number, objects
from foretell.planning.measured import KEY, MeasuredMachine, Points, Shape
from foretell.planning.model import Linear


def read_machine(path: Path) -> MeasuredMachine:
    """From a report of ``plan --measure``. Raises CheckpointError or DataError in one line."""
    values = read_json(path)
    if KEY not in values:
        raise DataError(f'no "{KEY}" in it; foretell plan MODEL --measure --json FILE writes one', path)
    found = an_object(values[KEY], path, KEY)
    texts = [found.get(name) for name in ("name", "model", "dtype")]
    if not all(isinstance(text, str) for text in texts):
        raise DataError(f"name, model and dtype are {texts!r:.80}, expected texts; the file is damaged", path)

    kind = found.get("heads_kind", "sequential")
    if kind not in ("sequential", "parallel", "medusa"):
        raise DataError(f"heads_kind is {kind!r:.60}, expected sequential, parallel or medusa", path)

    def curves(name: str, xs: str) -> dict[int, Points]:
        cells = objects(found.get(name, []), path, name)
        return {count(cell.get("rows"), path, "rows"): _points(cell, xs, path) for cell in cells}

    kernels = objects(found.get("kernels"), path, "kernels")
    machine = MeasuredMachine(
        name=str(texts[0]),
        num_threads=count(found.get("num_threads"), path, "num_threads"),
        model=str(texts[1]),
        dtype=str(texts[2]),
        num_layers=count(found.get("num_layers"), path, "num_layers"),
        context=count(found.get("context"), path, "context"),
        num_bytes=number(found.get("num_bytes"), path, "num_bytes", 1),
        bandwidth=number(found.get("bandwidth"), path, "bandwidth", 1),
        flops_per_s=number(found.get("flops_per_s"), path, "flops_per_s", 1),
        least_rows=count(found.get("least_rows"), path, "least_rows"),
        kernels={_shape(cell, path): _points(cell, "rows", path) for cell in kernels},
        passes=curves("passes", "nodes"),
        drafts=curves("drafts", "depths"),
        thin=_linears(found.get("thin"), path),
        thin_head=_linears(found.get("thin_head"), path),
        samples={_shape(cell, path): _samples(cell, path) for cell in kernels if "samples" in cell},
        environment=an_object(found.get("environment", {}), path, "environment"),
        reads=curves("reads", "lengths"),
        catch_ups=curves("catch_ups", "lengths"),
        heads_kind=kind,
    )
    if not machine.passes or not machine.drafts:
        raise DataError("passes or drafts are empty; measure again", path)
    if machine.reads.keys() != machine.catch_ups.keys():
        raise DataError("reads and catch_ups are of other numbers of prompts; the file is damaged", path)
    return machine


def _points(cell: Mapping[str, Any], xs: str, path: Path) -> Points:
    at, seconds = cell.get(xs), cell.get("seconds")
    if not isinstance(at, list) or not isinstance(seconds, list) or len(at) != len(seconds) or not at:
        raise DataError(f"{xs} and seconds are no lists of one length; the file is damaged", path)
    points = [(number(x, path, xs), number(y, path, "seconds", LEAST_TIME)) for x, y in zip(at, seconds, strict=True)]
    if any(after <= before for (before, _), (after, _) in zip(points, points[1:], strict=False)):
        raise DataError(f"{xs} do not rise; the file is damaged", path)
    return points


def _shape(cell: Mapping[str, Any], path: Path) -> Shape:
    return count(cell.get("num_out"), path, "num_out"), count(cell.get("num_in"), path, "num_in")


def _samples(cell: Mapping[str, Any], path: Path) -> list[list[float]]:
    """As many as there are row counts; ``_points`` has looked at those."""
    rows, samples = cell["rows"], cell["samples"]
    if (
        not isinstance(samples, list)
        or len(samples) != len(rows)
        or not all(isinstance(s, list) and s for s in samples)
    ):
        raise DataError("samples are no lists, one for every row count; the file is damaged", path)
    return [[number(second, path, "samples") for second in of_rows] for of_rows in samples]


def _linears(values: Any, path: Path) -> tuple[Linear, ...]:
    if not isinstance(values, list) or not all(isinstance(one, list) and len(one) == 3 for one in values):
        raise DataError("thin models' layers are no lists of three; the file is damaged", path)
    return tuple(Linear(*(count(size, path, "thin") for size in one)) for one in values)
