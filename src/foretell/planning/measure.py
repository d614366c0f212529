"""Measures this CPU for one model's shapes: packed linear layers by rows, and the steps of a thin model.

In rounds: every round measures all of it, so that a machine that is slow for some seconds is slow for a part of each
figure, and not for one of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import torch

from foretell.errors import UnsupportedModel, UsageError
from foretell.models.packed import can_pack, smallest_pass
from foretell.planning.averages import steady_mean
from foretell.planning.kernels import Kernels, large_matrix
from foretell.planning.measured import MeasuredMachine, Points, Samples
from foretell.planning.measured_costs import output_linears
from foretell.planning.model import PlanModel
from foretell.planning.thin import ThinRows, thin_linears, thin_model

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512)
BATCHES = (1, 2, 4, 8)
ROUNDS = 4


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
    kind = _checked(model, dtype)
    batches = sorted({*BATCHES, batch})
    total, done = 2 + ROUNDS * (1 + len(batches)), 0

    def advance() -> None:
        nonlocal done
        done += 1
        if on_progress:
            on_progress(done, total)

    with torch.inference_mode():
        bandwidth, flops = large_matrix(kind)
        advance()
        thin = thin_model(model, kind, max_depth)
        thin_trunk, thin_head = thin_linears(thin)
        output, head_output = output_linears(model)
        # A shape that several have is timed among the trunk's, since its weights push the heads' out of caches.
        kernels = [
            Kernels([*model.linears, output], model.num_layers, kind),
            Kernels([*model.heads.linears, head_output], 1, kind),
            Kernels(thin_trunk, model.num_layers, kind),
            Kernels(thin_head, 1, kind),
        ]
        samples: Samples = {shape: [[] for _ in ROWS] for each in kernels for shape in each.shapes}
        _sample(kernels, {shape: [[] for _ in ROWS] for shape in samples})  # warms up
        advance()
    steps = [ThinRows(thin, rows, context, max_depth) for rows in batches]
    for _ in range(ROUNDS):
        with torch.inference_mode():
            _sample(kernels, samples)
        advance()
        for rows in steps:
            rows.sample()
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
        least_rows=smallest_pass(thin.trunk.output_head),
        kernels={shape: _points(dict(zip(ROWS, of_rows, strict=True))) for shape, of_rows in samples.items()},
        passes={each.batch: _points({1 + depth: seconds for depth, seconds in each.passes.items()}) for each in steps},
        drafts={each.batch: _points(each.drafts) for each in steps},
        thin=thin_trunk,
        thin_head=thin_head,
        samples=samples,
        reads={each.batch: _points(each.reads) for each in steps if each.reads},
        catch_ups={each.batch: _points(each.catch_ups) for each in steps if each.reads},
        heads_kind=model.heads.kind,
    )


def _checked(model: PlanModel, dtype: str) -> torch.dtype:
    if dtype not in ("float32", "bfloat16"):
        raise UsageError(f"--measure: linear layers of {dtype} do not run here; give --dtype float32 or bfloat16")
    kind = torch.float32 if dtype == "float32" else torch.bfloat16
    if not can_pack(kind, torch.device("cpu")):
        raise UsageError(f"--measure: this CPU does not pack {dtype}; give --dtype float32")
    if model.stack.routed or any(cache.state_numbers for cache in model.caches):
        raise UnsupportedModel(
            f"--measure: {model.name} has experts or recurrent layers, whose kernels are not measured; give --hardware"
        )
    return kind


def _sample(kernels: Sequence[Kernels], samples: Samples) -> None:
    """One more sample of every shape and row count."""
    for index, rows in enumerate(ROWS):
        seen = set()
        for each in kernels:
            for shape, seconds in each.sample(rows).items():
                if shape not in seen:
                    samples[shape][index].append(seconds)
            seen |= set(each.shapes)


def _points(samples: Mapping[int, Sequence[float]]) -> Points:
    return [(float(x), steady_mean(seconds)) for x, seconds in sorted(samples.items())]
