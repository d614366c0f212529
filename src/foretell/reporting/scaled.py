"""Numbers with the unit that leaves three digits: ``671 B``, ``1.06 MB``, ``956 us``."""

from __future__ import annotations

Units = tuple[tuple[float, str], ...]
"""(size, name), largest first."""
COUNTS: Units = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
BYTES: Units = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
FLOPS: Units = ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"), (1.0, "FLOP"))
SECONDS: Units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def scaled(number: float, units: Units = COUNTS) -> str:
    """To three digits; what is smaller than the smallest unit keeps that one, and a count has none."""
    for size, unit in units:
        if number >= size * 0.9995:
            return f"{number / size:.3g} {unit}" if number < size * 99.95 else f"{number / size:.0f} {unit}"
    return f"{number:.3g}" if units is COUNTS else f"{number / units[-1][0]:.3g} {units[-1][1]}"
