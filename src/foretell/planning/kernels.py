"""Packed linear layers of given shapes, timed by rows, in a model's order with weights of their own.

So caches hold as much of them as they would in decoding; of a model above ``MAX_BYTES`` only its first layers are made.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch
from torch import nn

from foretell.models.packed import PackedLinear, packed
from foretell.planning.measured import Shape
from foretell.planning.model import Linear

MAX_BYTES = 2e9
_REPEATS = 4
_LARGE = 16384
"""Side of the matrix that bandwidth is read from: 512 MiB in bfloat16, more than caches hold."""
_BUSY, _BUSY_ROWS = 4096, 512
"""Side of the matrix, and rows, that arithmetic is timed with."""


class Kernels:
    """Linear layers of a stack of ``num_layers``, the output matrix behind them, in ``kind``."""

    def __init__(self, linears: Sequence[Linear], num_layers: int, kind: torch.dtype) -> None:
        layer_bytes = sum(one.num_out * one.num_in * one.count for one in linears) / num_layers * kind.itemsize
        kept = max(1, min(num_layers, int(MAX_BYTES / layer_bytes)))
        self._kind = kind
        self._order: list[tuple[Shape, PackedLinear]] = []
        for layer in range(kept):
            for one in linears:
                copies = (layer + 1) * one.count // num_layers - layer * one.count // num_layers
                copies = max(copies, int(layer == kept - 1))  # the output matrix, where the last layers were left out
                shape = (one.num_out, one.num_in)
                self._order += [(shape, _packed(*shape, kind)) for _ in range(copies)]

    @property
    def shapes(self) -> list[Shape]:
        """Shapes in the order in which they come first."""
        return list(dict.fromkeys(shape for shape, _ in self._order))

    def sample(self, rows: int) -> dict[Shape, float]:
        """Mean seconds of one call over ``rows`` rows, by shape, in one pass over all layers."""
        inputs = {num_in: torch.ones(rows, num_in, dtype=self._kind) for (_, num_in), _ in self._order}
        spent: dict[Shape, list[float]] = {}
        for shape, linear in self._order:
            spent.setdefault(shape, []).append(_timed(linear, inputs[shape[1]]))
        return {shape: statistics.fmean(seconds) for shape, seconds in spent.items()}


def large_matrix(kind: torch.dtype) -> tuple[float, float]:
    """Bytes/s of one row through a matrix that no cache holds, FLOP/s of many rows through a smaller one."""
    large = _packed(_LARGE, _LARGE, kind)
    row = torch.ones(2, _LARGE, dtype=kind)
    read_s = statistics.median(_timed(large, row) for _ in range(_REPEATS))
    busy, rows = _packed(_BUSY, _BUSY, kind), torch.ones(_BUSY_ROWS, _BUSY, dtype=kind)
    busy_s = statistics.median(_timed(busy, rows) for _ in range(_REPEATS))
    return _LARGE * _LARGE * kind.itemsize / read_s, 2 * _BUSY * _BUSY * _BUSY_ROWS / busy_s


def _packed(num_out: int, num_in: int, kind: torch.dtype) -> PackedLinear:
    linear = nn.Linear(1, 1, bias=False)
    linear.weight = nn.Parameter(torch.full((num_out, num_in), 0.01, dtype=kind), requires_grad=False)
    linear.out_features, linear.in_features = num_out, num_in
    stand_in = packed(linear)
    assert stand_in is not None
    return stand_in


def _timed(linear: nn.Module, rows: torch.Tensor) -> float:
    start = time.perf_counter()
    linear(rows)
    return time.perf_counter() - start
