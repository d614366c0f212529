"""SharedPrompts: what reading a prompt takes, from the share that a bench's own plain run spent on it."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.planning.bench_file import BenchRun
from foretell.planning.costs import Costs


class SharedPrompts:
    """Every prompt takes ``prompt_s``, whatever its length, and a step that only reads a pass over one token more."""

    def __init__(self, costs: Costs, prompt_s: float) -> None:
        self._pass_s, self._prompt_s = costs.pass_s(1, 1), prompt_s

    @classmethod
    def of_plain_run(cls, costs: Costs, plain: BenchRun | None, num_texts: int) -> SharedPrompts:
        """For a group of ``num_texts``; nothing where there is no plain run."""
        if plain is None:
            return cls(costs, 0.0)
        reading_s = plain.prefill_share * num_texts * plain.text_tokens / plain.tokens_per_s
        num_reads = -(-num_texts // plain.batch)  # without drafts, all texts of a batch end together
        return cls(costs, max(0.0, reading_s - num_reads * costs.pass_s(1, 1)) / num_texts)

    def join_s(self, rows: int, nodes: float, pieces: Sequence[int], num_first: int) -> float:
        """See ``PromptCosts``."""
        return len(pieces) * self._prompt_s + (0.0 if rows else self._pass_s)

    def catch_up_s(self, rows: int, depth: int, prompts: Sequence[int]) -> float:
        """Nothing: it is in ``prompt_s``, or in the seconds of drafting, where those were measured."""
        return 0.0
