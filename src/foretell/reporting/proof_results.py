"""What verify and probe files hold, as plain records."""

from __future__ import annotations

from dataclasses import dataclass

from foretell.reporting.runs import Depth


@dataclass(frozen=True)
class Difference:
    """A text that parted from plain decoding's; ``batch`` is 0 where unknown, ``system`` is set in compare files.

    ``cause``: a guess at why, in the words of the command that found it.
    """

    verdict: str
    prompt: int | None
    domain: str | None
    depth: str
    position: int | None
    expected_text: str
    got_text: str
    gap: float | None
    limit: float | None
    batch: int
    system: str | None = None
    cause: str | None = None


@dataclass(frozen=True)
class Where:
    """Machine, versions and time, as name -> text, and the command that wrote the file."""

    environment: dict[str, str]
    command: str | None
    load_note: str | None


@dataclass(frozen=True)
class ModelLaw:
    """One depth of the sampling check on a model of the user's. ``distance``: of tokens from draws of the trunk's law.

    ``num_outside``: tokens to which the law gives nothing.
    """

    passed: bool | None
    depth: Depth | None
    num_nodes: int
    num_samples: int | None
    distance: float | None
    limit: float | None
    num_outside: int | None
    acceptance_rate: float | None


@dataclass(frozen=True)
class Control:
    """A drafter that knows the text. ``acceptance``: of its first guesses, as counted; ``expected``: as the text has
    it, None in files from before it was worked out.
    """

    passed: bool | None
    kind: str
    acceptance: float | None
    expected: float | None
    num_texts: int | None
    differences: list[Difference]


@dataclass(frozen=True)
class Law:
    """One setting of the sampling check on the built-in model, whose law is known."""

    passed: bool | None
    settings: str
    depth: int | None
    num_nodes: int
    num_samples: int | None
    total_variation: float | None
    limit: float | None
    acceptance_rate: float | None


@dataclass(frozen=True)
class Verify:
    """A verify file; ``batch``: rows, texts and accepted tokens of the second comparison."""

    name: str
    passed: bool | None
    has_greedy: bool
    depths: list[str]
    num_nodes: int
    exact: bool
    num_prompts: int | None
    num_texts: int | None
    num_tokens: int | None
    num_accepted_tokens: int | None
    differences: list[Difference]
    batch_rows: int | None
    batch_texts: int | None
    batch_differences: list[Difference]
    laws: list[Law]
    model_laws: list[ModelLaw]
    controls: list[Control]
    where: Where


@dataclass(frozen=True)
class DepthQuality:
    """One depth of a probe: shares of positions, None where there were none."""

    depth: int
    num_positions: int | None
    agreement: float | None
    overlap: float | None
    chained: float | None


@dataclass(frozen=True)
class Stage:
    """A step between heads and served text. ``agrees`` is None where it was not checked."""

    name: str
    acceptance: tuple[float | None, ...]
    difference: float | None
    agrees: bool | None
    note: str


@dataclass(frozen=True)
class Served:
    """Acceptance by depth, unconditional: as the heads should give it, and as it was served."""

    predicted: tuple[float | None, ...]
    served: tuple[float | None, ...]
    num_rounds: int | None
    difference: float | None
    first_disagreement: str | None
    stages: list[Stage]


@dataclass(frozen=True)
class Probe:
    """A probe file, or what an adapter says of its held-out data; no ``depths`` where only ``served`` was asked."""

    name: str
    num_records: int | None
    depths: list[DepthQuality]
    mean_acceptance_length: float | None
    served: Served | None
    where: Where
