"""How much a command drafts: its depth, as asked for or by default, and whether a tree or an exact engine fits it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from foretell.cli.loading import check_depths, naming_option
from foretell.cli.options import MAX_EXACT_DEPTH, DepthChoice
from foretell.cli.output import note
from foretell.errors import UsageError

if TYPE_CHECKING:
    from foretell.decoding.drafter_config import DrafterConfig
    from foretell.models.mtp_model import MTPModel

DEFAULT_DEPTH = 3
"""Tokens drafted a step where a drafter without heads is asked for and no depth is."""


def resolve_depth(
    model: MTPModel, depth: DepthChoice | None, heads: str | None, drafter: DrafterConfig | None = None
) -> DepthChoice:
    """The depth to decode with: as asked; otherwise, if ``--heads`` or ``--drafter`` was given, what the heads that
    draft were trained for, 3 where none do; else 0.

    Hints, on stderr, at heads that stay unused. Raises UsageError for a depth the model cannot draft.
    """
    trained = 0
    if model.heads is not None:
        if drafter is None or "heads" in drafter.parts:
            trained = model.heads.config.num_depths
        else:
            note(f"hint: this model has heads, but --drafter {drafter.kind} leaves them unused")
    if depth is None and drafter is not None:
        depth = trained or DEFAULT_DEPTH
    elif depth is None:
        depth = trained if heads is not None else 0
    check_depths(model, [depth], "--depth", drafter)
    if depth == "auto":
        if model.heads is None and drafter is None:
            note(
                f"hint: {model.trunk.name} has no heads and there is no --drafter, so --depth auto is plain decoding, "
                "but for what a grammar forces"
            )
        return depth
    warn_beyond_training([("", model, drafter)], [depth])
    if trained and depth == 0:
        note(
            f"hint: this model has heads, but depth 0 leaves them unused; --depth {trained} drafts with them, --depth "
            "auto as far as it pays"
        )
    return depth


def trained_depth(model: MTPModel, drafter: DrafterConfig | None) -> int | None:
    """The deepest guess that the heads which draft were trained for; heads of a draft model follow its own guess.

    None where no depth is too deep: no heads draft, or they have a module a depth and stop behind the last.
    """
    heads, before = model.heads, 0
    if drafter is not None and "heads" not in drafter.parts:
        heads, before = (None if drafter.draft_model is None else drafter.draft_model.heads), 1
    return None if heads is None or heads.config.max_depth is not None else before + heads.config.num_depths


def warn_beyond_training(
    drafting: Iterable[tuple[str, MTPModel, DrafterConfig | None]], depths: Iterable[DepthChoice]
) -> list[str]:
    """One line on stderr where one of ``depths`` is deeper than the heads of ``drafting`` (name, model, drafter) were
    trained for, and the same as a list for a file's warnings. A single one needs no name. Nothing is said of auto,
    which drafts what pays.
    """
    asked = max((depth for depth in depths if depth != "auto"), default=0)
    shallow: dict[int, list[str]] = {}
    for name, model, drafter in drafting:
        trained = trained_depth(model, drafter)
        if trained is not None and trained < asked:
            shallow.setdefault(trained, []).append(name)
    if not shallow:
        return []
    to = ", ".join(f"{depth} ({', '.join(names)})" if any(names) else str(depth) for depth, names in shallow.items())
    line = f"depth {asked} is asked for, and heads were trained to {to}; deeper guesses are seldom right and cost time"
    note(f"warning: {line}")
    return [line]


def check_shape(depth: DepthChoice, num_nodes: int | None = None, exact: bool = False) -> None:
    """Raise UsageError, naming the option, where ``--nodes`` or ``--exact`` goes with no model at this depth."""
    if num_nodes is not None and exact:
        raise UsageError("--nodes: --exact drafts chains, as a tree's sums round otherwise; leave one of the two out")
    if num_nodes is not None and depth == 0:
        raise UsageError("--nodes: nothing is drafted at depth 0; leave --nodes out")
    if num_nodes is not None and depth != "auto" and num_nodes <= depth:
        raise UsageError(
            f"--nodes: {num_nodes} nodes at depth {depth} are no tree, which has more nodes than it is deep; give "
            f"at least {depth + 1}, or leave --nodes out for a chain"
        )
    if exact and depth != "auto" and depth > MAX_EXACT_DEPTH:
        raise UsageError(f"--exact: depth {depth} is too deep for it; draft at most {MAX_EXACT_DEPTH} tokens")


def check_draft(
    model: MTPModel,
    depth: DepthChoice,
    num_nodes: int | None = None,
    exact: bool = False,
    drafter: DrafterConfig | None = None,
) -> None:
    """Raise UsageError, naming the option, where ``--nodes`` or ``--exact`` does not go with model or depth."""
    from foretell.decoding.engine import Engine

    engine = Engine(model, drafter=drafter, exact=exact)
    if num_nodes is not None and engine.drafter is None:
        raise UsageError(f"--nodes: nothing is drafted at depth {depth} here; leave --nodes out")
    check_shape(depth, num_nodes, exact)
    with naming_option("--nodes" if num_nodes else "--exact" if exact else "--depth"):
        engine.check_depth(depth, num_nodes or 0)
