"""StateQueue: states that a drafter has seen and whose module has not read them for good."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass
class StateQueue:
    """States (n, D) of consecutive tokens of a row; the first belongs to token ``start``."""

    start: int
    states_ND: torch.Tensor

    def extend(self, index: int, states_ND: torch.Tensor) -> None:
        """Append states whose first index is ``index``; those already here (index below the end) are skipped."""
        skip = self.start + len(self.states_ND) - index
        self.states_ND = torch.cat([self.states_ND, states_ND[skip:]])

    def since(self, index: int) -> torch.Tensor:
        """The states from ``index`` on."""
        return self.states_ND[index - self.start :]

    def drop_before(self, index: int) -> None:
        """Forget states below ``index``."""
        count = max(0, index - self.start)
        self.states_ND = self.states_ND[count:]
        self.start += count
