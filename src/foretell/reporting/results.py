"""What each kind of result file holds, as plain records: bench and compare, training, and all together."""

from __future__ import annotations

from dataclasses import dataclass, field

from foretell.reporting.eval_results import Eval
from foretell.reporting.node import Spread
from foretell.reporting.plan_results import PlanFile
from foretell.reporting.proof_results import Difference, Probe, Verify
from foretell.reporting.runs import Depth, Run


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
    """A bench file. ``unlike``: for each batch size, texts of a system that are not depth 0's.

    ``warnings``: what the command that wrote the file said against its own figures. ``stopped``: for each batch size
    that was not finished, measurements that were made and that were to be made.
    """

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
    warnings: list[str]
    incomplete: bool = False
    stopped: dict[int, tuple[int, int]] = field(default_factory=dict)


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
    """A compare file: a bench whose runs belong to ``systems``. ``costs``: passes and drafts by a system's name."""

    bench: Bench
    systems: list[System]
    costs: dict[str, tuple[list[StepCost], list[StepCost]]] = field(default_factory=dict)

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
    evals: list[Eval] = field(default_factory=list)
    plans: list[PlanFile] = field(default_factory=list)
    adapters: list[Adapter] = field(default_factory=list)
    logs: list[TrainingLog] = field(default_factory=list)
    problems: dict[str, list[str]] = field(default_factory=dict)
