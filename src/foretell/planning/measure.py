"""Measures this CPU for one model's shapes: packed linear layers by rows, and the steps of a thin model.

The kernels run in the model's order, layer by layer with weights of their own, so that caches hold as much of them as
they would in decoding; of a model above ``_MAX_BYTES`` only its first layers.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import nn

from foretell.errors import UnsupportedModel, UsageError
from foretell.models.packed import PackedLinear, can_pack, smallest_pass
from foretell.planning.measured import MeasuredMachine, Points, Samples, Shape, output_linears
from foretell.planning.model import Linear, PlanModel
from foretell.planning.thin import thin_linears, thin_model, thin_steps

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
BATCHES = (1, 2, 4, 8)
_REPEATS = 4
_MAX_BYTES = 2e9
_LARGE = 16384
"""Side of the matrix that bandwidth is read from: 512 MiB in bfloat16, more than caches hold."""
_BUSY, _BUSY_ROWS = 4096, 512
"""Side of the matrix, and rows, that arithmetic is timed with."""


def measure(
    model: PlanModel,
    dtype: str,
    name: str,
    context: int,
    max_depth: int,
    batch: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> MeasuredMachine:
    """Steps at ``BATCHES`` and ``batch`` rows, with ``context`` tokens behind each, to ``max_depth``.

    ``name``: of the CPU. Raises UsageError for a type that this CPU does not pack, UnsupportedModel for experts and
    recurrent layers.
    """
    if dtype not in ("float32", "bfloat16"):
        raise UsageError(f"--measure: linear layers of {dtype} do not run here; give --dtype float32 or bfloat16")
    kind = torch.float32 if dtype == "float32" else torch.bfloat16
    if not can_pack(kind, torch.device("cpu")):
        raise UsageError(f"--measure: this CPU does not pack {dtype}; give --dtype float32")
    if model.stack.routed or any(cache.state_numbers for cache in model.caches):
        raise UnsupportedModel(
            f"--measure: {model.name} has experts or recurrent layers, whose kernels are not measured; give --hardware"
        )
    output, head_output = output_linears(model)
    batches = sorted({*BATCHES, batch})
    total, done = 3 + len(batches), 0

    def advance() -> None:
        nonlocal done
        done += 1
        if on_progress:
            on_progress(done, total)

    with torch.inference_mode():
        bandwidth, flops = _large_matrix(kind)
        advance()
        thin = thin_model(model, kind, max_depth)
        least_rows = smallest_pass(thin.trunk.output_head)
        own, own_head = thin_linears(thin)
        samples = _kernels([*model.linears, output], model.num_layers, kind)
        samples |= _kernels([*model.heads.linears, head_output], 1, kind)
        advance()
        samples |= _kernels(own, model.num_layers, kind) | _kernels(own_head, 1, kind)
        advance()
    passes: dict[int, Points] = {}
    drafts: dict[int, Points] = {}
    for rows in batches:
        passes[rows], drafts[rows] = thin_steps(thin, rows, context, max_depth)
        advance()
    return MeasuredMachine(
        name=name,
        num_threads=torch.get_num_threads(),
        model=model.name,
        dtype=dtype,
        num_layers=model.num_layers,
        context=context,
        num_bytes=float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        bandwidth=bandwidth,
        flops_per_s=flops,
        least_rows=least_rows,
        kernels={
            shape: [(float(rows), statistics.median(seconds)) for rows, seconds in zip(ROWS, of_rows, strict=True)]
            for shape, of_rows in samples.items()
        },
        passes=passes,
        drafts=drafts,
        thin=own,
        thin_head=own_head,
        samples=samples,
    )


def _large_matrix(kind: torch.dtype) -> tuple[float, float]:
    """Bytes/s of one row through a matrix that no cache holds, FLOP/s of many rows through a smaller one."""
    large = _packed(_LARGE, _LARGE, kind)
    row = torch.ones(2, _LARGE, dtype=kind)
    read_s = statistics.median(_timed(large, row) for _ in range(_REPEATS))
    busy, rows = _packed(_BUSY, _BUSY, kind), torch.ones(_BUSY_ROWS, _BUSY, dtype=kind)
    busy_s = statistics.median(_timed(busy, rows) for _ in range(_REPEATS))
    return _LARGE * _LARGE * kind.itemsize / read_s, 2 * _BUSY * _BUSY * _BUSY_ROWS / busy_s


def _kernels(linears: Sequence[Linear], num_layers: int, kind: torch.dtype) -> Samples:
    """All layers one after the other, pass after pass; the first pass warms up and is left out."""
    layer_bytes = sum(one.num_out * one.num_in * one.count for one in linears) / num_layers * kind.itemsize
    kept = max(1, min(num_layers, int(_MAX_BYTES / layer_bytes)))
    plan: list[tuple[Shape, PackedLinear]] = []
    for layer in range(kept):
        for one in linears:
            copies = (layer + 1) * one.count // num_layers - layer * one.count // num_layers
            copies = max(copies, int(layer == kept - 1))  # the output matrix, where the last layers were left out
            plan += [((one.num_out, one.num_in), _packed(one.num_out, one.num_in, kind)) for _ in range(copies)]
    found: Samples = {shape: [] for shape, _ in plan}
    for rows in ROWS:
        inputs = {num_in: torch.ones(rows, num_in, dtype=kind) for (_, num_in), _ in plan}
        seconds: dict[Shape, list[float]] = {shape: [] for shape in found}
        for _ in range(_REPEATS + 1):
            spent: dict[Shape, list[float]] = {shape: [] for shape in found}
            for shape, linear in plan:
                spent[shape].append(_timed(linear, inputs[shape[1]]))
            for shape, times in spent.items():
                seconds[shape].append(statistics.fmean(times))
        for shape, means in seconds.items():
            found[shape].append(means[1:])
    return found


def _packed(num_out: int, num_in: int, kind: torch.dtype) -> PackedLinear:
    linear = nn.Linear(1, 1, bias=False)
    linear.weight = nn.Parameter(torch.full((num_out, num_in), 0.01, dtype=kind), requires_grad=False)
    linear.out_features, linear.in_features = num_out, num_in
    return PackedLinear(linear)


def _timed(linear: nn.Module, rows: torch.Tensor) -> float:
    start = time.perf_counter()
    linear(rows)
    return time.perf_counter() - start
