"""StateQueue: states that a drafter has seen and whose module has not read them for good."""

from __future__ import annotations

import torch


class StateQueue:
    """States (n, D) of consecutive tokens of a row; the first belongs to token ``start``.

    Pieces are joined when they are read, not when they come: a row that drafts seldom adds one at every step.
    """

    def __init__(self, start: int, states_ND: torch.Tensor) -> None:
        self.start = start
        self._pieces = [states_ND]
        self._length = len(states_ND)

    @property
    def states_ND(self) -> torch.Tensor:
        """All states that wait."""
        if len(self._pieces) > 1:
            self._pieces = [torch.cat(self._pieces)]
        return self._pieces[0]

    def extend(self, index: int, states_ND: torch.Tensor) -> None:
        """Append states whose first index is ``index``; those already here (index below the end) are skipped."""
        new_ND = states_ND[self.start + self._length - index :]
        self._pieces.append(new_ND)
        self._length += len(new_ND)

    def since(self, index: int) -> torch.Tensor:
        """The states from ``index`` on."""
        return self.states_ND[index - self.start :]

    def drop_before(self, index: int) -> None:
        """Forget states below ``index``."""
        count = max(0, index - self.start)
        if count:
            self._pieces = [self.states_ND[count:]]
            self._length = len(self._pieces[0])
            self.start += count
