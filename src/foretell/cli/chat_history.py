"""What was said so far, kept within the window."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foretell.errors import ContextLengthError

if TYPE_CHECKING:
    from foretell.decoding.engine import Engine


@dataclass
class History:
    """``turns``: (question, answer), oldest first; ``system``: what the model is told before them, or None."""

    engine: Engine
    system: str | None = None
    turns: list[tuple[str, str]] = field(default_factory=list)

    def prompt(self, question: str, max_tokens: int) -> tuple[list[int], int]:
        """Token ids of everything up to ``question``, and how many of the oldest turns had to be dropped for it.

        Turns are dropped until an answer has room for ``max_tokens``, or for a quarter of the window where that is
        less. Raises ContextLengthError, with all turns kept, where the question alone leaves no room for a token, and
        UsageError where the model's template refuses the messages.
        """
        window = self.engine.max_length
        most = window - min(max_tokens, window // 4)
        for num_dropped in range(len(self.turns) + 1):
            is_last = num_dropped == len(self.turns)
            try:
                token_ids = self.engine.encode(self._messages(self.turns[num_dropped:], question))
            except ContextLengthError:
                if is_last:
                    raise
                continue
            if len(token_ids) <= most or is_last:
                break
        if len(token_ids) >= window:
            raise ContextLengthError(
                f"the question has {len(token_ids)} tokens and the memory holds {window}, answer included; shorten it "
                f"to at most {window - 1}"
            )
        del self.turns[:num_dropped]
        return token_ids, num_dropped

    def check_system(self, system: str | None) -> None:
        """Raise UsageError where the model's template has no place for such a text, ContextLengthError where it is too
        long.
        """
        History(self.engine, system).prompt("?", 1)

    def _messages(self, turns: list[tuple[str, str]], question: str) -> list[dict[str, str]]:
        found = [] if self.system is None else [{"role": "system", "content": self.system}]
        for asked, answered in turns:
            found += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
        return [*found, {"role": "user", "content": question}]
