"""What a plan file holds, as plain records: a prediction by depth, and predictions beside a bench file."""

from __future__ import annotations

from dataclasses import dataclass

from foretell.reporting.proof_results import Where


@dataclass(frozen=True)
class PlannedDepth:
    """One depth as it was predicted; ``num_nodes``: drafted tokens a row. Sizes and seconds are those of a step.

    ``never_pays``: it gains nothing even where every draft is accepted; ``break_even`` is None then, and at depth 0.
    """

    depth: int
    num_nodes: int
    num_bytes: float | None
    flops: float | None
    intensity: float | None
    idle_share: float | None
    num_awake_experts: float | None
    pass_s: float | None
    draft_s: float | None
    tokens_per_pass: float | None
    tokens_per_s: float | None
    speedup: float | None
    simple_speedup: float | None
    break_even: float | None
    never_pays: bool

    @property
    def is_tree(self) -> bool:
        """True where a level has several nodes."""
        return self.num_nodes != self.depth


@dataclass(frozen=True)
class Planned:
    """One plan. ``facts``: what was assumed, name -> value as text. ``seconds_are``: "bounds", "adjusted bounds" or
    "measured". ``break_even_batch``: the smallest at which drafting gains nothing, searched up to ``searched_batch``.
    ``max_batch``: rows of ``context`` tokens that fit beside the weights; ``weights_fit`` says why none does.

    ``published``: batch size -> speed-up that others published for this model and machine, from ``published_source``.
    """

    model: str
    machine: str
    batch: int | None
    facts: dict[str, str]
    seconds_are: str | None
    depths: list[PlannedDepth]
    best_depth: int | None
    break_even_batch: int | None
    searched_batch: int | None
    max_batch: int | None
    context: int | None
    weights_fit: bool
    published: dict[str, float]
    published_source: str | None

    @property
    def best(self) -> PlannedDepth | None:
        """The depth with the most tokens/s; None where no acceptance was given."""
        return next((depth for depth in self.depths if depth.depth == self.best_depth), None)


@dataclass(frozen=True)
class Beside:
    """One batch size and depth of a bench file, predicted and measured. ``error``: predicted tokens/s over measured,
    less 1.
    """

    batch: int
    depth: int
    num_nodes: int
    is_tree: bool
    tokens_per_pass: float | None
    predicted_tokens_per_s: float | None
    measured_tokens_per_s: float | None
    error: float | None
    predicted_speedup: float | None
    measured_speedup: float | None

    @property
    def label(self) -> str:
        """``batch 4, depth 2``, ``batch 1, depth 3, tree of 8``."""
        return f"batch {self.batch}, depth {self.depth}" + (f", tree of {self.num_nodes}" if self.is_tree else "")


@dataclass(frozen=True)
class PlanFile:
    """A plan file: ``planned`` where a model was named, ``beside`` (source of the costs -> rows) where a bench file
    was; ``bench`` is its name. ``where``: of a machine that was measured.
    """

    name: str
    planned: Planned | None
    bench: str | None
    beside: dict[str, list[Beside]]
    where: Where
