"""Sums over the tensors of a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping

from foretell.checkpoints.files import TensorHeader


def stored_numbers(headers: Mapping[str, TensorHeader]) -> dict[str, int]:
    """Numbers stored in each type, most first; a packed one counts as one."""
    found: dict[str, int] = {}
    for header in headers.values():
        found[header.dtype] = found.get(header.dtype, 0) + math.prod(header.shape)
    return dict(sorted(found.items(), key=lambda item: -item[1]))
