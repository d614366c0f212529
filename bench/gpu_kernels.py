"""The Triton kernels on a GPU: are they right, how long does a launch take, how much of the bandwidth do they get.

    python bench/gpu_kernels.py --json out.json
    python bench/gpu_kernels.py --interpret      (the first part alone, on a CPU, in Triton's interpreter)

Times are medians of CUDA events, taken while the device lags behind the host, so that they hold the launch on the
device and not Python; ``host_us`` is what the call costs there, ``graph_us`` a launch out of a CUDA graph. Each launch
reads other keys than the one before, as the layers of a model do, more of them than a device's cache holds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

MARK_US = 15.0
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
BLOCK_SIZE = 16
NUM_LAUNCHES = 200
BATCH = 25
MIN_BYTES = 512 * 2**20
"""Keys and values that launches take turns on: several times the largest cache of a device."""
COPIED_BYTES = 2**30

Shape = tuple[int, int, int, int, int, int]
"""Rows, committed entries, nodes, query heads, kv heads, head size."""
CHECKED: list[Shape] = [
    (1, 1000, 1, 32, 8, 128),
    (3, 700, 9, 32, 8, 64),
    (2, 4000, 64, 16, 2, 128),
    (4, 0, 33, 9, 3, 64),
    (1, 20000, 16, 8, 8, 256),
]
INTERPRETED: list[Shape] = [(2, 70, 5, 4, 2, 64), (1, 130, 20, 3, 1, 128)]
TIMED: list[Shape] = [
    (rows, committed, nodes, 32, 8, 128)
    for rows, committed, nodes in product((1, 8, 32), (1024, 8192, 32768), (1, 8, 64))
    if rows * committed <= 8 * 32768
]


def random_tree(num_rows: int, num_nodes: int, device: str) -> tuple[torch.Tensor, ...]:
    """Parents, tokens and the trunk's tokens, (B, N); about half of all children are right."""
    nodes_N = torch.arange(num_nodes)
    back_BN = (torch.rand(num_rows, num_nodes) * nodes_N.clamp(max=4)).long() + 1
    parents_BN = (nodes_N - back_BN).index_fill_(1, torch.tensor([0]), -1)
    argmax_BN, other_BN = torch.randint(0, 50000, (2, num_rows, num_nodes))
    right_BN = argmax_BN.gather(1, parents_BN.clamp(min=0))
    tokens_BN = torch.where(torch.rand(num_rows, num_nodes) < 0.5, right_BN, other_BN)
    return tuple(each.to(device) for each in (parents_BN, tokens_BN, argmax_BN))


def attention_inputs(shape: Shape, dtype: torch.dtype, device: str, num_layers: int = 1) -> list[tuple[Any, ...]]:
    """Arguments of the kernel, for layers with keys of their own; rows differ in length where there are several."""
    from foretell.kernels.reference import tree_bits

    num_rows, num_committed, num_nodes, num_heads, num_kv_heads, size = shape
    per_row = -(-(num_committed + num_nodes) // BLOCK_SIZE)
    blocks_BK = torch.randperm(num_rows * per_row).view(num_rows, per_row).int().to(device)
    num_committed_B = torch.tensor([max(0, num_committed - 5 * b) for b in range(num_rows)]).int().to(device)
    tree_BN = tree_bits(random_tree(num_rows, num_nodes, device)[0])
    layers = []
    for _ in range(num_layers):
        query = torch.randn(num_rows, num_nodes, num_heads, size, device=device).to(dtype)
        keys, values = (
            torch.randn(num_kv_heads, num_rows * per_row, BLOCK_SIZE, size, device=device, dtype=dtype) for _ in "kv"
        )
        layers.append((query, keys, values, blocks_BK, num_committed_B, tree_BN, size**-0.5))
    return layers


def accept_inputs(num_rows: int, num_nodes: int, device: str) -> tuple[torch.Tensor, ...]:
    """Arguments of the accept kernel."""
    parents_BN, tokens_BN, argmax_BN = random_tree(num_rows, num_nodes, device)
    slots_BN = torch.randperm(num_rows * num_nodes, device=device).view(num_rows, num_nodes)
    return argmax_BN, tokens_BN, parents_BN, slots_BN, torch.arange(num_rows, device=device, dtype=torch.int32)


def check(shapes: Sequence[Shape], device: str) -> list[dict[str, Any]]:
    """The kernels against their references, in all dtypes; with one share of the keys, three, and the default."""
    from foretell.kernels.accept_triton import accept, tree_bits
    from foretell.kernels.reference import accept_reference, tree_attention_reference
    from foretell.kernels.reference import tree_bits as tree_bits_reference
    from foretell.kernels.tree_attention_triton import tree_attention

    results: list[dict[str, Any]] = []
    for shape, (dtype, most), num_splits in product(shapes, TOLERANCE.items(), (1, 3, None)):
        (inputs,) = attention_inputs(shape, dtype, device)
        query, keys, values, *rest = inputs
        right = tree_attention_reference(query.double(), keys.double(), values.double(), *rest)
        error = (tree_attention(*inputs, num_splits=num_splits) - right).abs().max().item()
        case: dict[str, Any] = {
            "kernel": "tree_attention",
            "shape": shape,
            "dtype": str(dtype),
            "num_splits": num_splits,
        }
        results.append(case | {"error": error, "tolerance": most, "ok": error <= most})
    for num_rows, num_nodes in product((1, 7, 64), (1, 2, 17, 64)):
        given = accept_inputs(num_rows, num_nodes, device)
        pairs = zip(accept(*given), accept_reference(*given), strict=True)
        case = {"kernel": "accept", "shape": (num_rows, num_nodes)}
        results.append(case | {"ok": all(mine.dtype == r.dtype and torch.equal(mine, r) for mine, r in pairs)})
        same = torch.equal(tree_bits(given[2]), tree_bits_reference(given[2]))
        results.append({"kernel": "tree_bits", "shape": (num_rows, num_nodes), "ok": same})
    return results


def device_us(launches: Sequence[Callable[[], Any]], num_launches: int = NUM_LAUNCHES) -> float:
    """Median microseconds of a launch, the launches taken in turns."""
    for launch in launches[:3]:
        launch()
    times: list[float] = []
    while len(times) < num_launches:
        torch.cuda.synchronize()
        torch.cuda._sleep(10_000_000)  # some milliseconds in which the host gets ahead
        marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(BATCH)]
        for i, (before, after) in enumerate(marks):
            before.record()
            launches[(len(times) + i) % len(launches)]()
            after.record()
        torch.cuda.synchronize()
        times += [1e3 * before.elapsed_time(after) for before, after in marks]
    return statistics.median(times)


def host_us(launch: Callable[[], Any]) -> float:
    """Median microseconds until a call returns."""
    times = []
    for _ in range(NUM_LAUNCHES):
        torch.cuda.synchronize()
        start = time.perf_counter()
        launch()
        times.append(1e6 * (time.perf_counter() - start))
    return statistics.median(times)


def graph_us(launches: Sequence[Callable[[], Any]]) -> float:
    """Microseconds a launch where ``BATCH`` of them are one CUDA graph: a whole model's layers in one go."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(BATCH):
            launches[i % len(launches)]()
    return device_us([graph.replay], BATCH) / BATCH


def measure(device: str) -> dict[str, Any]:
    """Times of the kernels, and the bandwidth of attention beside that of a copy."""
    from foretell.kernels.accept_triton import accept, tree_bits
    from foretell.kernels.tree_attention_triton import tree_attention

    source = torch.ones(COPIED_BYTES, dtype=torch.uint8, device=device)
    copy_bytes_per_s = 2e6 * COPIED_BYTES / device_us([partial(torch.empty_like(source).copy_, source)], BATCH)
    print(f"copy: {copy_bytes_per_s / 1e9:.0f} GB/s read and written", flush=True)
    rows: list[dict[str, Any]] = []

    def add(kernel: str, shape: Sequence[int], launches: Sequence[Callable[[], Any]], num_bytes: int) -> None:
        each = device_us(launches)
        row: dict[str, Any] = {"kernel": kernel, "shape": shape, "device_us": each, "host_us": host_us(launches[0])}
        row |= {"graph_us": graph_us(launches), "within_mark": each <= MARK_US}
        if num_bytes:
            rate = 1e6 * num_bytes / each
            row |= {"bytes": num_bytes, "bytes_per_s": rate, "of_copy": rate / copy_bytes_per_s}
        rows.append(row)
        share = f", {row['bytes_per_s'] / 1e9:.0f} GB/s, {row['of_copy']:.0%} of a copy" if num_bytes else ""
        times = ", ".join(f"{name} {row[f'{name}_us']:.1f} us" for name in ("device", "host", "graph"))
        print(f"{kernel} {tuple(shape)}: {times}{share}", flush=True)

    for num_rows, num_nodes in product((1, 8, 64), (8, 64)):
        given = accept_inputs(num_rows, num_nodes, device)
        add("accept", (num_rows, num_nodes), [partial(accept, *given)], 0)
        add("tree_bits", (num_rows, num_nodes), [partial(tree_bits, given[2])], 0)
    for shape in TIMED:
        num_rows, _, num_nodes, _, num_kv_heads, size = shape
        committed = sum(max(0, shape[1] - 5 * b) for b in range(num_rows))
        num_bytes = 2 * (committed + num_rows * num_nodes) * num_kv_heads * size * torch.bfloat16.itemsize
        num_layers = min(128, max(2, -(-MIN_BYTES // num_bytes)))
        layers = attention_inputs(shape, torch.bfloat16, device, num_layers)
        add("tree_attention", shape, [partial(tree_attention, *layer) for layer in layers], num_bytes)
    return {"mark_us": MARK_US, "copy_bytes_per_s": copy_bytes_per_s, "times": rows}


def main() -> None:
    """Correctness first; times only of what is right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interpret", action="store_true", help="check on the CPU, in Triton's interpreter; no times")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.interpret:
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    elif not torch.cuda.is_available():
        sys.exit("no CUDA device: run this on a GPU, or with --interpret for the correctness part")
    from foretell.analysis.environment import environment

    torch.manual_seed(0)
    device = "cpu" if args.interpret else "cuda"
    checks = check(INTERPRETED if args.interpret else CHECKED, device)
    wrong = [each for each in checks if not each["ok"]]
    print(f"{len(checks) - len(wrong)} of {len(checks)} cases as the reference", flush=True)
    report: dict[str, Any] = {
        "environment": environment("bfloat16", " ".join(sys.argv)),
        "device": "interpreter" if args.interpret else torch.cuda.get_device_name(),
        "checks": checks,
    }
    if not wrong and not args.interpret:
        report |= measure(device)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    if wrong:
        sys.exit("wrong: " + "; ".join(str(each) for each in wrong[:5]))


if __name__ == "__main__":
    main()
