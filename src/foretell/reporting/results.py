"""What each kind of result file holds, as plain records: bench and compare, verify, probe, training."""

from __future__ import annotations

from dataclasses import dataclass, field

from foretell.reporting.node import Spread
from foretell.reporting.runs import Depth, Run


@dataclass(frozen=True)
class Difference:
    """A text that parted from plain decoding's; ``batch`` is 0 where unknown, ``system`` is set in compare files."""

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


@dataclass(frozen=True)
class StepCost:
    """Seconds of a pass, or of drafting where ``depth`` is a number. ``rows`` of ``batch`` places were in use."""

    batch: int
    rows: int
    nodes: int
    depth: int | None
    num_steps: int
    seconds: Spread


@dataclass(frozen=True)
class Bench:
    """A bench file. ``others``: for each batch size, texts of a system that are not depth 0's."""

    name: str
    environment: dict[str, str]
    command: str | None
    load_note: str | None
    runs: list[Run]
    passes: list[StepCost]
    drafts: list[StepCost]
    differences: list[Difference]
    unlike: dict[int, dict[str, int]]
    notes: list[str]
    incomplete: bool = False


@dataclass(frozen=True)
class System:
    """Who drafted in a compare file, at one depth. ``source``: where its heads or its small model come from."""

    name: str
    label: str
    drafter: str | None
    source: str | None
    depth: Depth | None
    num_nodes: int
    extra_parameters: float | None
    extra_memory_bytes: float | None


@dataclass(frozen=True)
class Compare:
    """A compare file: a bench whose runs belong to ``systems``."""

    bench: Bench
    systems: list[System]

    def system_of(self, run: Run) -> System | None:
        """The one of the run's name and depth, or of its name; None for plain decoding."""
        own = [system for system in self.systems if system.name == run.name]
        same = [s for s in own if (s.depth, s.num_nodes) == (run.depth, run.num_nodes)]
        return next(iter([*same, *own]), None)

    def label_of(self, run: Run) -> str:
        """The system's label, with the depth where it ran at several."""
        system = self.system_of(run)
        if system is None:
            return run.label if run.is_plain or run.name is None else run.name
        several = len({other.label for other in self.bench.runs if other.name == run.name}) > 1
        return f"{system.label}, {run.label}" if several else system.label


@dataclass(frozen=True)
class Law:
    """One setting of the sampling check."""

    passed: bool | None
    settings: str
    depth: int | None
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


@dataclass(frozen=True)
class DepthQuality:
    """One depth of a probe: shares of positions, None where there were none."""

    depth: int
    num_positions: int | None
    agreement: float | None
    overlap: float | None
    chained: float | None


@dataclass(frozen=True)
class Probe:
    """A probe file, or what an adapter says of its held-out data."""

    name: str
    num_records: int | None
    depths: list[DepthQuality]
    mean_acceptance_length: float | None


@dataclass(frozen=True)
class Adapter:
    """An adapter's mtp_config.json: what was trained, on what. ``facts``: name -> value, as text."""

    name: str
    facts: dict[str, str]
    probe: Probe | None


@dataclass(frozen=True)
class TrainingLog:
    """metrics.jsonl: quantity -> (step, value), in order of steps."""

    name: str
    curves: dict[str, list[tuple[float, float]]]
    summary: dict[str, float]


@dataclass
class Results:
    """All files together; ``problems``: file name -> what in it could not be used."""

    benches: list[Bench] = field(default_factory=list)
    compares: list[Compare] = field(default_factory=list)
    verifies: list[Verify] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    adapters: list[Adapter] = field(default_factory=list)
    logs: list[TrainingLog] = field(default_factory=list)
    problems: dict[str, list[str]] = field(default_factory=dict)
