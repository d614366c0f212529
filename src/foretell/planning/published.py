"""What others measured and published, to stand beside a prediction. Never used in one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """Speed-up over plain decoding by batch size. ``unknown``: what the source does not say."""

    model: str
    hardware: str
    devices: int
    speedups: dict[int, float]
    source: str
    unknown: str


PUBLISHED = (
    Published(
        "deepseek-v3",
        "h200",
        8,
        {1: 1.8, 32: 1.5},
        "SGLang documentation, DeepSeek usage, multi-token prediction, H200 TP8",
        "depth, acceptance, context and plain tokens/s",
    ),
)


def published_for(model: str, hardware: str, devices: int) -> Published | None:
    """The figures for this model on this many of this device; None where there are none."""
    return next((p for p in PUBLISHED if (p.model, p.hardware, p.devices) == (model, hardware, devices)), None)
