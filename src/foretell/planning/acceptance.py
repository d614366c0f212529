"""Acceptance by depth, from numbers or from a report, and the tokens a pass that follow from it.

Conditional: depth k accepted, given that all before it were (alpha_k). Unconditional: depths 1 to k all accepted
(a_k = alpha_1 x ... x alpha_k); that is what ``bench`` writes as acceptance_by_depth and ``probe`` as chained.

    E[K] = 1 + sum over k = 1..D of alpha_1 x ... x alpha_k        (Leviathan et al., arXiv 2211.17192, eq. 1, by depth)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Any

from foretell.checkpoints.files import read_json
from foretell.errors import DataError, UsageError
from foretell.planning.bench_runs import AcceptedRun, accepted_run
from foretell.planning.fields import an_object, number_list, objects, share
from foretell.planning.names import measured_model
from foretell.reporting.runs import ALL as ALL  # and from here for the rest of planning

_ALL_PLACES = (
    "greedy chains from all places; decoding accepts less, since rounds begin behind a failed guess: probe --served "
    "here walks over them"
)


@dataclass(frozen=True)
class Acceptance:
    """``conditional``: alpha_1, alpha_2, ...; ``repeats``: deeper depths are accepted as the last one is.

    ``origin``: what the reader is told about where it comes from. ``num_nodes``: of the trees it holds for; 0 = chains.
    ``tree_length``: tokens a pass that those trees gave. Some end before their last level, whose share is that of the
    rest, so the product would say too much. ``model``: that the file it is from names.
    """

    conditional: tuple[float, ...]
    repeats: bool = False
    origin: str = "as given"
    num_nodes: int = 0
    tree_length: float | None = None
    model: str | None = None

    @classmethod
    def parse(cls, text: str, unconditional: bool) -> Acceptance:
        """ "0.8" for every depth, "0.8,0.7,0.6" depth by depth. Raises UsageError naming the option."""
        try:
            values = [float(part) for part in text.split(",")]
        except ValueError:
            values = []
        if not values or not all(0 <= value <= 1 for value in values):
            raise UsageError(
                f'--acceptance: "{text:.80}" is not allowed; give shares from 0 to 1 with commas (0.8,0.7), one for '
                "every depth (0.8), or a file (.json) that bench or probe wrote"
            )
        if not unconditional:
            return cls(tuple(values), repeats=len(values) == 1)
        if any(after > before for before, after in zip(values, values[1:], strict=False)):
            raise UsageError(
                f'--acceptance: "{text:.80}" rises, and shares accepted up to a depth cannot; leave out --unconditional'
            )
        return cls(conditional_from(values), repeats=False)

    def at(self, depth: int) -> float:
        """alpha of ``depth``, from 1."""
        return self.conditional[min(depth, len(self.conditional)) - 1]

    @property
    def max_depth(self) -> int | None:
        """As deep as it is known; None = everywhere."""
        return None if self.repeats else len(self.conditional)

    def tokens_per_pass(self, depth: int) -> float:
        """E[K]: accepted tokens and the trunk's own, for drafts of ``depth``."""
        if self.tree_length is not None and depth == len(self.conditional):
            return self.tree_length
        return tokens_per_pass([self.at(k) for k in range(1, depth + 1)])


def tokens_per_pass(conditional: Sequence[float]) -> float:
    """E[K] of conditional acceptance by depth: 0.785 three times gives 2.885."""
    return 1.0 + sum(accumulate(conditional, mul))


def simple_speedup(num_tokens: float, cost_per_depth: float, depth: int) -> float:
    """S = E[K] / (1 + c D): a pass costs the same at every width, each depth of drafting the share c of one."""
    return num_tokens / (1 + cost_per_depth * depth)


def conditional_from(unconditional: Sequence[float]) -> tuple[float, ...]:
    """alpha_k = a_k / a_(k-1); 0 where depth k was never reached."""
    before = [1.0, *unconditional]
    return tuple(min(after / b, 1.0) if b else 0.0 for b, after in zip(before, unconditional, strict=False))


def read_acceptance(path: Path, batch: int, num_nodes: int = 0, depth: int | None = None) -> Acceptance:
    """From a file of ``bench`` (its deepest chain over all prompts, or the tree of ``num_nodes`` and ``depth``; at
    ``batch`` if that was measured, else at the smallest; of the heads where several drafted) or of ``probe`` (rounds
    where it walked over them, else all places). Raises DataError where it holds none, and for a file of ``compare``.
    """
    values = read_json(path)
    if "runs" in values:
        found = _from_bench(path, accepted_run(values, path, batch, num_nodes, depth), num_nodes)
    elif "depths" in values or "served" in values:
        found = _from_probe(path, values, num_nodes)
    else:
        raise DataError(
            'neither a bench file ("runs") nor a probe file ("depths"); foretell bench or probe --json writes one', path
        )
    return replace(found, model=measured_model(values))


def _from_bench(path: Path, run: AcceptedRun, num_nodes: int) -> Acceptance:
    kind = "tree" if num_nodes else "chain"
    drafter = f", drafted by {run.drafter}" if run.drafter else ""
    origin = f"{path}, {kind} of depth {run.depth} at batch {run.batch}{drafter}"
    conditional = conditional_from(run.shares)
    return Acceptance(conditional, origin=origin, num_nodes=num_nodes, tree_length=run.mean_length)


def _from_probe(path: Path, values: Mapping[str, Any], num_nodes: int) -> Acceptance:
    """Rounds begin behind a failed guess, where the next ones fail more often than over all places."""
    if num_nodes:
        raise DataError("a probe file tells of chains only; give a bench file with that tree, or numbers", path)
    if (served := values.get("served")) is not None:
        predicted = number_list(an_object(served, path, "served").get("predicted"), path, "served.predicted")
        return Acceptance(
            conditional_from(predicted), origin=f"{path}, rounds of greedy decoding, as probe walked over them"
        )
    depths = objects(values.get("depths"), path, "depths")
    shares = [share(depth.get("chained"), path, "chained") for depth in depths if depth.get("chained") is not None]
    if not shares:
        raise DataError("no depth has a chained share; probe text with longer answers", path)
    return Acceptance(conditional_from(shares), origin=f"{path}, {_ALL_PLACES}")
