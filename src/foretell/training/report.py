"""TrainReport: what a run did and how good its result is on held-out documents."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class TrainReport:
    """``num_steps`` are those of the whole run, the first ``resumed_at`` of them made before. ``train_s`` and
    ``mean_loss`` are of the others alone; the loss is None where there were none.

    ``data``: documents, tokens, targets and bytes of both parts. ``num_targets_by_depth``: tokens that each depth
    learns to predict, once over the data; the trunk's own, depth 0, first. ``held_out``: see ``evaluate``.
    """

    output: str
    data: dict[str, Any]
    num_targets_by_depth: list[int]
    num_steps: int
    resumed_at: int
    train_s: float = 0.0
    mean_loss: float | None = None
    held_out: dict[str, Any] = field(default_factory=dict)

    @property
    def num_train_tokens(self) -> int:
        """Tokens of the training documents."""
        return int(self.data["training"]["num_tokens"])

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "num_train_tokens": self.num_train_tokens}
