"""Hardware: peak arithmetic and memory bandwidth of one device as vendors' data sheets have them, dense (no sparsity).

``source`` names the sheet to check a number against: written down from knowledge of it, not copied. B200's and
MI300X's bfloat16 peaks, bandwidth and memory were compared with a public catalogue (rooflinenotes.dev).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from foretell.errors import UsageError

PlanDtype = Literal["float32", "bfloat16", "float8", "int4"]
"""How weights are stored. int4 is unpacked and multiplied in bfloat16."""

WEIGHT_BYTES: Mapping[str, float] = {"float32": 4.0, "bfloat16": 2.0, "float8": 1.0, "int4": 0.5}
"""Bytes a weight; scales of the quantised ones, 1 to 3 % more, are left out."""

CACHE_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float8": 2, "int4": 2}
"""Bytes a number of keys, values and recurrent states: 16 bits beside smaller weights too, as engines do by default."""

_ARITHMETIC: Mapping[str, str] = {"float32": "float32", "bfloat16": "bfloat16", "float8": "float8", "int4": "bfloat16"}


@dataclass(frozen=True)
class Hardware:
    """One device. ``peak_flops``: FLOP/s by type of arithmetic; ``bandwidth``: bytes/s; ``num_bytes``: its memory."""

    name: str
    peak_flops: Mapping[str, float]
    bandwidth: float
    num_bytes: float
    source: str

    def flops_per_s(self, dtype: str) -> float:
        """Peak FLOP/s for weights of ``dtype``. Raises UsageError where this device has no such arithmetic."""
        kind = _ARITHMETIC[dtype]
        if kind not in self.peak_flops:
            raise UsageError(
                f"--dtype {dtype}: {self.name} has no {kind} arithmetic; give {' or '.join(self.peak_flops)}"
            )
        return self.peak_flops[kind]

    def balance(self, dtype: str) -> float:
        """FLOPs a byte at which arithmetic and memory are busy equally long; less than that is bound by memory."""
        return self.flops_per_s(dtype) / self.bandwidth


def _device(name: str, float32: float, bfloat16: float, float8: float, tb_s: float, gb: float, source: str) -> Hardware:
    """TFLOP/s, TB/s and GB; 0 for arithmetic that it does not have."""
    peaks = {"float32": float32, "bfloat16": bfloat16, "float8": float8}
    return Hardware(name, {k: v * 1e12 for k, v in peaks.items() if v}, tb_s * 1e12, gb * 1e9, source)


HARDWARE: dict[str, Hardware] = {
    "h100": _device("H100 SXM", 67, 989.4, 1978.9, 3.35, 80, "NVIDIA H100 data sheet, without sparsity"),
    "h200": _device("H200 SXM", 67, 989.4, 1978.9, 4.8, 141, "NVIDIA H200 data sheet, without sparsity"),
    "b200": _device("B200 SXM", 75, 2250, 4500, 8.0, 180, "NVIDIA DGX B200 data sheet, an eighth, without sparsity"),
    "mi300x": _device("MI300X", 163.4, 1307.4, 2614.9, 5.3, 192, "AMD Instinct MI300X data sheet, without sparsity"),
    "rtx4090": _device("RTX 4090", 82.6, 165.2, 330.3, 1.008, 24, "NVIDIA Ada whitepaper, accumulating in float32"),
    "rtx5090": _device("RTX 5090", 104.8, 209.5, 419, 1.792, 32, "NVIDIA RTX Blackwell whitepaper, same"),
    "cpu": _device(
        "Xeon Platinum 8480+",
        7.17,  # 56 cores x 2 units x 16 numbers x 2 x 2.0 GHz
        229.4,  # 56 cores x 2,048 FLOPs a cycle (AMX) x 2.0 GHz
        0,
        0.3072,  # 8 channels x 4,800 MT/s x 8 bytes
        512,
        "Intel ARK, one socket at base clock, 8 x 64 GB DDR5-4800; computed, and AMX runs slower than base clock",
    ),
}
