"""MeasuredMachine: kernels of a model's own shapes, and the steps of a thin model, as they were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from foretell.planning.hardware import Hardware
from foretell.planning.model import Linear

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

    ``reads``: prompts -> (tokens of each, seconds of the thin model's step that reads them all and nothing else);
    ``catch_ups``: the same, seconds of drafting one token for each of them in the step behind it, in which the heads
    read the prompts. {} in files that have none. ``heads_kind``: of the thin model's heads.

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
    reads: dict[int, Points] = field(default_factory=dict)
    catch_ups: dict[int, Points] = field(default_factory=dict)
    heads_kind: str = "sequential"

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
            "heads_kind",
        )
        return {name: getattr(self, name) for name in plain} | {
            "kernels": [
                {"num_out": o, "num_in": i, "rows": [x for x, _ in points], "seconds": [y for _, y in points]}
                | ({"samples": self.samples[o, i]} if (o, i) in self.samples else {})
                for (o, i), points in self.kernels.items()
            ],
            "passes": _curves(self.passes, "nodes"),
            "drafts": _curves(self.drafts, "depths"),
            "reads": _curves(self.reads, "lengths"),
            "catch_ups": _curves(self.catch_ups, "lengths"),
            "thin": [[one.num_out, one.num_in, one.count] for one in self.thin],
            "thin_head": [[one.num_out, one.num_in, one.count] for one in self.thin_head],
            "environment": dict(self.environment),
        }


def _curves(curves: Mapping[int, Points], xs: str) -> list[dict[str, Any]]:
    return [
        {"rows": rows, xs: [x for x, _ in points], "seconds": [y for _, y in points]} for rows, points in curves.items()
    ]
