"""ChainOrTree: which of two kinds of draft is kept, by the tokens a second that each brought."""

from __future__ import annotations

from collections import deque
from statistics import median

_FIRST_CHAINS = 24
"""Steps before the tree is tried: the depth policy finds its chains meanwhile."""
_TRIAL = 16
"""Steps of one trial. A trial costs a step's difference so many times, so they become rarer while nothing changes."""
_FIRST_PAUSE, _LONGEST_PAUSE = 240, 4000


class ChainOrTree:
    """Takes turns: one kind is kept, the other is tried for a few steps now and then, in longer and longer pauses.

    Seconds are medians, because a shared machine is late now and then; tokens are means.
    """

    def __init__(self) -> None:
        self.keeps_tree = False
        self._seconds: dict[bool, deque[float]] = {kind: deque(maxlen=2 * _TRIAL) for kind in (False, True)}
        self._tokens: dict[bool, deque[int]] = {kind: deque(maxlen=2 * _TRIAL) for kind in (False, True)}
        self._pause = _FIRST_PAUSE
        self._until_trial = _FIRST_CHAINS
        self._left_of_trial = 0

    @property
    def wants_tree(self) -> bool:
        """The kind of the next step."""
        return self.keeps_tree != (self._left_of_trial > 0)

    def observe(self, num_tokens: int, seconds: float) -> None:
        """A step of the wanted kind brought so many tokens."""
        kind = self.wants_tree
        self._seconds[kind].append(seconds)
        self._tokens[kind].append(num_tokens)
        if self._left_of_trial:
            self._left_of_trial -= 1
            if self._left_of_trial == 0:
                self._decide()
            return
        self._until_trial -= 1
        if self._until_trial <= 0:
            self._left_of_trial = _TRIAL

    def tokens_per_s(self, tree: bool) -> float:
        """What this kind has brought lately; 0 before it was tried."""
        if not self._seconds[tree]:
            return 0.0
        return sum(self._tokens[tree]) / len(self._tokens[tree]) / median(self._seconds[tree])

    def _decide(self) -> None:
        changed = self.tokens_per_s(True) > self.tokens_per_s(False)
        self._pause = _FIRST_PAUSE if changed != self.keeps_tree else min(2 * self._pause, _LONGEST_PAUSE)
        self.keeps_tree = changed
        self._until_trial = self._pause
