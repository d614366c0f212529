"""Options of ``foretell bench`` that only the model and the prompts show to be right or wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.cli.options import DepthChoice
from foretell.errors import UsageError

if TYPE_CHECKING:
    from foretell.analysis.texts import BenchPrompt
    from foretell.decoding.drafter_config import DrafterConfig
    from foretell.models.mtp_model import MTPModel


def counts(text: str, option: str, at_least: int) -> list[int]:
    """ "1,8" -> [1, 8], in rising order; raises UsageError naming the option."""
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        counts = [at_least - 1]
    if counts[0] < at_least:
        raise UsageError(
            f'{option}: "{text}" is not allowed; give integers of at least {at_least} with commas, such as 4,8'
        )
    return counts


def check_nodes(
    model: MTPModel, depths: Sequence[DepthChoice], nodes: list[int], drafter: DrafterConfig | None
) -> None:
    """Raise UsageError, naming the option, where the drafter makes no such trees."""
    from foretell.analysis.bench import settings_of
    from foretell.decoding.engine import Engine

    if not nodes:
        return
    engine = Engine(model, drafter=drafter)
    try:
        for setting in settings_of(model, depths, nodes, drafter):
            engine.check_depth(setting.depth, setting.num_nodes)
    except UsageError as error:
        raise UsageError(f"--nodes: {error}") from error


def check_batches(prompts: list[BenchPrompt], batches: list[int]) -> None:
    """Raise UsageError, naming the option, where there are too few prompts."""
    from foretell.analysis.texts import groups_of

    try:
        for rows in batches:
            groups_of(prompts, rows)
    except UsageError as error:
        raise UsageError(f"--batch: {error}") from error
