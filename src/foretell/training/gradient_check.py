"""Every trainable tensor must learn: one that never gets a gradient stops the run with its name."""

from __future__ import annotations

from torch import nn

from foretell.errors import ForetellError
from foretell.models.shards import whole

_PATIENCE = 10
"""Steps a tensor may go without a gradient: an expert may not be chosen in the first ones."""


class GradientCheck:
    """Called once a step, after the backward pass; costs nothing any more once every tensor had its gradient.

    ``wait_share``: share of the run within which a curriculum brings in all depths.
    """

    def __init__(self, model: nn.Module, wait_share: float = 0.0) -> None:
        self._waiting = {name: param for name, param in model.named_parameters() if param.requires_grad}
        self._wait_share = wait_share
        self._num_steps = 0

    def __call__(self, step: int, num_steps: int) -> None:
        """``step`` of ``num_steps``, 0-based; raises ForetellError where patience or the run is at its end."""
        if not self._waiting:
            return
        self._waiting = {n: p for n, p in self._waiting.items() if p.grad is None or not bool(whole(p.grad).any())}
        self._num_steps += 1
        if self._waiting and (self._num_steps >= _PATIENCE + self._wait_share * num_steps or step + 1 >= num_steps):
            names = sorted(self._waiting)
            shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            raise ForetellError(
                f"no gradient reached {len(names)} of the tensors that should train, in {self._num_steps} steps: "
                f"{shown}; the run stops, because they would stay as they were made"
            )
