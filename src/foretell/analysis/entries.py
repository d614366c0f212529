"""Entries of a comparison: every contender at every depth and as trees, as far as it goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretell.analysis.batch_systems import EngineBatch
from foretell.analysis.contenders import PLAIN, Contender
from foretell.analysis.step_costs import StepCosts
from foretell.analysis.systems import EngineSystem
from foretell.errors import UsageError
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Depth


@dataclass(frozen=True)
class Entry:
    """A contender at one depth, as a chain or, with ``num_nodes``, a tree; None of it = depth 0."""

    contender: Contender | None
    depth: Depth = 0
    num_nodes: int = 0

    @property
    def name(self) -> str:
        """The contender's, or "plain"."""
        return self.contender.name if self.contender else PLAIN

    def system(self, trunk: Trunk, batch: int, costs: StepCosts | None = None) -> EngineSystem | EngineBatch:
        """What is timed; ``costs`` collects what its steps cost."""
        model = self.contender.model if self.contender else MTPModel(trunk).eval()
        drafter = self.contender.drafter if self.contender else None
        if batch == 1:
            return EngineSystem(model, self.depth, drafter, self.num_nodes, costs)
        return EngineBatch(model, batch, self.depth, drafter, self.num_nodes, costs)


def entries_of(contenders: Sequence[Contender], depths: Sequence[Depth], nodes: Sequence[int]) -> list[Entry]:
    """Every contender at every depth that it has, and as trees where it branches.

    A depth beyond a contender's last is left out for it (`left_out`); raises UsageError where none is left.
    """
    entries = []
    for contender in contenders:
        limit = contender.max_depth()
        own = [depth for depth in depths if depth == "auto" or (depth and (limit is None or depth <= limit))]
        if not own:
            raise UsageError(f"depths {', '.join(map(str, depths))}: {contender.label} drafts {limit} tokens at most")
        entries += [Entry(contender, depth) for depth in own]
        if contender.drafter.branches:
            entries += [Entry(contender, depth, n) for n in nodes for depth in own if depth != "auto" and depth < n]
    return entries


def left_out(contenders: Sequence[Contender], depths: Sequence[Depth], nodes: Sequence[int]) -> list[str]:
    """A sentence for every contender that has not all of ``depths``, or no trees though ``nodes`` are asked for."""
    flat = [contender.label for contender in contenders if nodes and not contender.drafter.branches]
    return [f"{label} drafts chains alone: no trees for it" for label in flat] + [
        f"{contender.label} drafts {limit} tokens at most: depth {', '.join(map(str, beyond))} is left out for it"
        for contender in contenders
        if (limit := contender.max_depth()) is not None
        and (beyond := [depth for depth in depths if depth != "auto" and depth > limit])
    ]
