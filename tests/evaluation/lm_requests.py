"""Requests as lm-eval hands them to a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.api.instance import Instance


def instances(kind: Any, *arguments: tuple[Any, ...], task: str = "t") -> Sequence[Instance]:
    """One request for each tuple of arguments."""
    return [
        Instance(request_type=kind, doc={}, arguments=args, idx=i, metadata=(task, i, 1))
        for i, args in enumerate(arguments)
    ]
