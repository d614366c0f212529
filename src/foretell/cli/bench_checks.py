"""Options of ``foretell bench`` that together, or with the model and the prompts, may be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.cli.loading import naming_option
from foretell.cli.options import DepthChoice
from foretell.errors import UsageError

if TYPE_CHECKING:
    from foretell.analysis.texts import BenchPrompt
    from foretell.decoding.drafter_config import DrafterConfig
    from foretell.models.mtp_model import MTPModel


def check_trees(depths: Sequence[DepthChoice], nodes: Sequence[int]) -> None:
    """Raise UsageError, naming the option, for a number of nodes that makes a tree at none of ``depths``."""
    drafted = sorted({depth for depth in depths if depth != "auto" and depth})
    for num_nodes in nodes:
        if not any(depth < num_nodes for depth in drafted) and "auto" not in depths:
            at = f"depths {', '.join(map(str, drafted))}" if drafted else "no fixed depth above 0"
            raise UsageError(
                f"--nodes: {num_nodes} nodes at {at} are no tree, which has more nodes than it is deep; give --depths "
                f"one from 1 to {num_nodes - 1}, or more nodes"
            )


def check_nodes(
    model: MTPModel, depths: Sequence[DepthChoice], nodes: list[int], drafter: DrafterConfig | None
) -> None:
    """Raise UsageError, naming the option, where the drafter makes no such trees."""
    from foretell.analysis.bench import settings_of
    from foretell.decoding.engine import Engine

    if not nodes:
        return
    engine = Engine(model, drafter=drafter)
    if engine.drafter is None:
        raise UsageError(
            f"--nodes: {model.trunk.name} has no heads, so nothing is drafted; --heads names an adapter folder"
        )
    with naming_option("--nodes"):
        for setting in settings_of(model, depths, nodes, drafter):
            engine.check_depth(setting.depth, setting.num_nodes)


def check_batches(prompts: list[BenchPrompt], batches: list[int]) -> None:
    """Raise UsageError, naming the option, where there are too few prompts."""
    from foretell.analysis.texts import groups_of

    with naming_option("--batch"):
        for rows in batches:
            groups_of(prompts, rows)
