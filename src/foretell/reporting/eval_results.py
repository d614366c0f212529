"""What an eval file holds, as plain records: bits per byte, task scores, answers that parse, what was decoded."""

from __future__ import annotations

from dataclasses import dataclass

from foretell.reporting.proof_results import Where
from foretell.reporting.runs import Depth


@dataclass(frozen=True)
class DepthBits:
    """One depth's score on a text; depth 0 is the trunk's. ``coverage``: share of ``num_targets`` that the draft
    vocabulary holds. Bits per byte are infinite, and None here, where it does not hold all.
    """

    depth: int
    num_targets: int | None
    coverage: float | None
    bits_per_token: float | None
    bits_per_byte: float | None

    @property
    def is_infinite(self) -> bool:
        """True where some tokens have no probability at all."""
        return self.coverage is not None and self.coverage < 1


@dataclass(frozen=True)
class TextBits:
    """One text, or all of them together. ``keeps_text``: its tokens decode to the text itself."""

    file: str
    num_bytes: int | None
    num_tokens: int | None
    keeps_text: bool | None
    depths: list[DepthBits]

    @property
    def trunk(self) -> DepthBits | None:
        """Depth 0."""
        return next((depth for depth in self.depths if depth.depth == 0), None)


@dataclass(frozen=True)
class Texts:
    """Texts read in windows of so many tokens; ``whole``: all together."""

    window: int | None
    stride: int | None
    files: list[TextBits]
    whole: TextBits


@dataclass(frozen=True)
class Score:
    """One metric of one task. ``version`` to ``metric`` say what was asked: scores are comparable where all are equal.

    ``higher_is_better`` is None where lm-eval does not say. ``error``: standard error.
    """

    task: str
    version: str
    num_examples: int | None
    num_documents: int | None
    filter: str
    metric: str
    higher_is_better: bool | None
    value: float | None
    error: float | None

    @property
    def key(self) -> tuple[str, str, int | None, int | None, str, str]:
        """What was asked."""
        return self.task, self.version, self.num_examples, self.num_documents, self.filter, self.metric


@dataclass(frozen=True)
class Decoded:
    """What decoding took while something else was measured. ``tokens_per_s``: of all requests, prompts included.

    ``acceptance_by_depth``: unconditional; empty where nothing was drafted.
    """

    name: str
    num_requests: int | None
    num_tokens: int | None
    tokens_per_s: float | None
    mean_acceptance_length: float | None
    acceptance_by_depth: tuple[float | None, ...]


@dataclass(frozen=True)
class Parsed:
    """Answers by outcome. ``share``: of those that were judged, None where all were cut off.

    ``num_context_full``: of those cut off, by the end of the context; None in files that do not say.
    """

    language: str
    max_tokens: int | None
    num_outputs: int | None
    num_parsed: int | None
    num_failed: int | None
    num_empty: int | None
    num_cut_off: int | None
    num_context_full: int | None
    share: float | None


@dataclass(frozen=True)
class Eval:
    """An eval file; a part that was not asked for is None or empty. ``depth`` is None where nothing was decoded.

    ``warnings``: what the command said against its own figures. ``incomplete``: a measurement was not finished.
    """

    name: str
    model: str | None
    heads: str | None
    depth: Depth | None
    batch: int | None
    texts: Texts | None
    scores: list[Score]
    parsed: Parsed | None
    decoded: list[Decoded]
    warnings: list[str]
    where: Where
    incomplete: bool = False
