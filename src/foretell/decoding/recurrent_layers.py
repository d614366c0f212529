"""A recurrent layer run token by token, where a pass of several tokens from an earlier state would be wrong."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Protocol

import torch


class Stretches(Protocol):
    """What the wrapped layer asks of the states (``RecurrentStates``)."""

    def stretches(self) -> Iterator[tuple[list[int], int, int]]:
        """Rows, and the first and last (exclusive) of their nodes to run now; covers every row's nodes in order."""


def wrap_layer(layer: type[torch.nn.Module]) -> None:
    """Let the layer's class run what its cache asks for (once a class).

    Nothing changes for a cache without an attribute ``recurrent``.
    """
    original: Any = layer.forward
    if hasattr(original, "runs_stretches"):
        return

    @functools.wraps(original)
    def forward(self: Any, hidden_states: torch.Tensor, *args: Any, cache: Any = None, **kwargs: Any) -> torch.Tensor:
        states: Stretches | None = getattr(cache, "recurrent", None)
        if states is None:
            return original(self, hidden_states, *args, cache=cache, **kwargs)
        output = torch.zeros_like(hidden_states)
        for rows, start, stop in states.stretches():
            output[rows, start:stop] = original(self, hidden_states[rows, start:stop], *args, cache=cache, **kwargs)
        return output

    setattr(forward, "runs_stretches", True)  # noqa: B010
    setattr(layer, "forward", forward)  # noqa: B010
