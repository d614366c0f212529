"""Names of models: the one that a file was measured with, and whether it is the one that is planned for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def measured_model(values: Mapping[str, Any]) -> str | None:
    """The model that a file of bench, probe or verify names; None in older ones, and where that is no text."""
    name = values.get("model")
    return name if isinstance(name, str) and name else None


def is_other(measured: str | None, planned: str) -> bool:
    """True where both are known and neither name is part of the other: SmolLM2-135M-Instruct may be smollm2-135m."""
    if measured is None:
        return False
    one, two = (name.rpartition("/")[2].casefold() for name in (measured, planned))
    return one not in two and two not in one
