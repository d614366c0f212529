"""Costs put together from what was measured on a machine: kernels of the model's own shapes, and everything else.

    pass(n) = step of a thin model (n) + sum over linear layers of [time of its shape (n) - time of the thin one's (n)]

The thin model has the real one's layers, attention, vocabulary and engine, but hardly any width, so its steps hold what
is not a linear layer: launches, caches, attention over the context, logits. The kernels hold the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foretell.checkpoints.files import read_json
from foretell.decoding.curve import Curve, rising
from foretell.errors import DataError, UsageError
from foretell.planning.fields import an_object, count, number, objects
from foretell.planning.hardware import Hardware
from foretell.planning.model import Linear, PlanModel

KEY = "machine"
"""Where a report of ``plan`` keeps what was measured."""

Shape = tuple[int, int]
Points = list[tuple[float, float]]
Samples = dict[Shape, list[list[float]]]
"""Of each kernel and row count, the mean seconds of one call in every pass over the layers."""


@dataclass(frozen=True)
class MeasuredMachine:
    """``bandwidth`` (bytes/s) and ``flops_per_s``: of one large matrix. ``kernels``: (out, in) -> (rows, seconds).

    ``passes``: rows -> (nodes a row, seconds) of the thin model's steps without drafting; ``drafts``: rows -> (depth,
    seconds). ``thin`` and ``thin_head``: its linear layers. ``least_rows``: to which a pass of one request is padded.

    ``samples``: what the kernels' seconds are the medians of, row count by row count; {} in files that have none.
    ``environment``: when it was measured, with which versions, and what else ran; set by the command.
    """

    name: str
    num_threads: int
    model: str
    dtype: str
    num_layers: int
    context: int
    num_bytes: float
    bandwidth: float
    flops_per_s: float
    least_rows: int
    kernels: dict[Shape, Points]
    passes: dict[int, Points]
    drafts: dict[int, Points]
    thin: tuple[Linear, ...]
    thin_head: tuple[Linear, ...]
    samples: Samples = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hardware(self) -> Hardware:
        """This machine as a data sheet would have it, from the large matrix."""
        return Hardware(self.name, {self.dtype: self.flops_per_s}, self.bandwidth, self.num_bytes, "measured")

    @property
    def max_rows(self) -> int:
        """The largest batch whose steps were measured."""
        return max(self.passes)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; ``read_machine`` takes them back."""
        plain = (
            "name",
            "num_threads",
            "model",
            "dtype",
            "num_layers",
            "context",
            "num_bytes",
            "bandwidth",
            "flops_per_s",
            "least_rows",
        )
        return {name: getattr(self, name) for name in plain} | {
            "kernels": [
                {"num_out": o, "num_in": i, "rows": [x for x, _ in points], "seconds": [y for _, y in points]}
                | ({"samples": self.samples[o, i]} if (o, i) in self.samples else {})
                for (o, i), points in self.kernels.items()
            ],
            "passes": _curves(self.passes, "nodes"),
            "drafts": _curves(self.drafts, "depths"),
            "thin": [[one.num_out, one.num_in, one.count] for one in self.thin],
            "thin_head": [[one.num_out, one.num_in, one.count] for one in self.thin_head],
            "environment": dict(self.environment),
        }


def read_machine(path: Path) -> MeasuredMachine:
    """From a report of ``plan --measure``. Raises CheckpointError or DataError in one line."""
    values = read_json(path)
    if KEY not in values:
        raise DataError(f'no "{KEY}" in it; foretell plan MODEL --measure --json FILE writes one', path)
    found = an_object(values[KEY], path, KEY)
    texts = [found.get(name) for name in ("name", "model", "dtype")]
    if not all(isinstance(text, str) for text in texts):
        raise DataError(f"name, model and dtype are {texts!r:.80}, expected texts; the file is damaged", path)

    def curves(name: str, xs: str) -> dict[int, Points]:
        cells = objects(found.get(name), path, name)
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
    )
    if not machine.passes or not machine.drafts:
        raise DataError("passes or drafts are empty; measure again", path)
    return machine


class MeasuredCosts:
    """Costs of ``model`` on a machine that was measured for it. Raises UsageError where it was not."""

    def __init__(self, machine: MeasuredMachine, model: PlanModel) -> None:
        self._machine = machine
        self._kernels = {shape: _curve(points) for shape, points in machine.kernels.items()}
        self._passes = {rows: _curve(points) for rows, points in machine.passes.items()}
        self._drafts = {rows: _curve(points) for rows, points in machine.drafts.items()}
        output, head_output = output_linears(model)
        self._distinct = model.heads.distinct
        self._trunk, self._head = (*model.linears, output), (*model.heads.linears, head_output)
        wanted = {(one.num_out, one.num_in) for one in (*self._trunk, *self._head, *machine.thin, *machine.thin_head)}
        if machine.num_layers != model.num_layers or not wanted <= self._kernels.keys():
            raise UsageError(
                f"--hardware: that machine was measured for the shapes of {machine.model}, {model.name} has others; "
                f"measure it again: foretell plan {model.name} --measure --json FILE"
            )

    def pass_s(self, batch: int, nodes: int) -> float:
        """Seconds of a pass over ``nodes`` tokens of each of ``batch`` rows, and of everything behind it."""
        rows = max(batch * nodes, self._machine.least_rows if batch == 1 else 1)
        return _at(self._passes, batch, nodes) + self._wider(self._trunk, self._machine.thin, rows)

    def draft_s(self, batch: int, depth: int, num_true: float, width: float) -> float:
        """Seconds of drafting. The thin model's drafts are hardly ever accepted, so its heads read one token a row."""
        total = _at(self._drafts, batch, depth)
        for level in range(depth):
            rows = batch * (num_true if level == 0 or self._distinct else width)
            total += self._seconds(self._head[:-1], rows) + self._seconds(
                self._head[-1:], batch * (width if level else 1)
            )
            total -= self._seconds(self._machine.thin_head, batch)
        return total

    def _wider(self, real: Sequence[Linear], thin: Sequence[Linear], rows: float) -> float:
        return self._seconds(real, rows) - self._seconds(thin, rows)

    def _seconds(self, linears: Sequence[Linear], rows: float) -> float:
        return sum(one.count * (self._kernels[one.num_out, one.num_in].at(rows) or 0.0) for one in linears)


def output_linears(model: PlanModel) -> tuple[Linear, Linear]:
    """The matrices that project the vocabulary, and what heads draft from."""
    rows = model.heads.draft_vocab or model.vocab_size
    return Linear(model.vocab_size, model.hidden_size, 1), Linear(rows, model.hidden_size, 1)


def _curve(points: Points) -> Curve:
    """More rows, nodes or depths are never cheaper (isotonic): what says otherwise was noise."""
    return Curve(rising([(x, seconds, 1) for x, seconds in points]))


def _at(curves: Mapping[int, Curve], rows: int, x: float) -> float:
    """Between measured row counts on a line, beyond them on the last one's."""
    return Curve([(float(r), curve.at(x) or 0.0) for r, curve in sorted(curves.items())]).at(rows) or 0.0


def _curves(curves: Mapping[int, Points], xs: str) -> list[dict[str, Any]]:
    return [
        {"rows": rows, xs: [x for x, _ in points], "seconds": [y for _, y in points]} for rows, points in curves.items()
    ]


def _points(cell: Mapping[str, Any], xs: str, path: Path) -> Points:
    at, seconds = cell.get(xs), cell.get("seconds")
    if not isinstance(at, list) or not isinstance(seconds, list) or len(at) != len(seconds) or not at:
        raise DataError(f"{xs} and seconds are no lists of one length; the file is damaged", path)
    points = [(number(x, path, xs), number(y, path, "seconds")) for x, y in zip(at, seconds, strict=True)]
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
