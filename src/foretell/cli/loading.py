"""Load a model for a command: type and heads, with one line that says what was found."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from foretell.cli.options import DtypeName
from foretell.cli.output import note
from foretell.errors import UsageError
from foretell.threads import BUSY, share_busy_cores

if TYPE_CHECKING:
    import torch

    from foretell.models.heads import Heads
    from foretell.models.mtp_model import MTPModel


def check_model(trunk: str, heads: str | None = None) -> None:
    """Raise CheckpointError, before anything heavy is imported, where ``trunk`` or ``heads`` names nothing there is.

    Then decides how threads wait for each other, while that is still possible.
    """
    from foretell.checkpoints.adapter_config import read_adapter_config
    from foretell.checkpoints.source import find_source

    find_source(trunk)
    if heads not in (None, "none"):
        read_adapter_config(heads)
    if share_busy_cores():
        note(BUSY)


def load_model(trunk: str, heads: str | None = None, dtype: DtypeName = "auto", pack: bool = True) -> MTPModel:
    """Load trunk and heads for decoding on this CPU (``pack``: see ``load``), and say on stderr which heads were found.

    Warnings become one line each, with the loader's other lines on stderr.
    """
    from foretell.checkpoints.adapter import StaleHeadsWarning
    from foretell.checkpoints.files import CheckpointWarning
    from foretell.checkpoints.load import load

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", CheckpointWarning)
        model = load(trunk, heads=heads, dtype=torch_dtype(dtype), pack=pack, on_progress=note)
    for warning in caught:
        note(f"warning: {warning.message}")
    if model.heads is not None:
        match = "no" if any(issubclass(w.category, StaleHeadsWarning) for w in caught) else "yes"
        note(f"heads: {describe_heads(model.heads)}; trunk match: {match} ({model.trunk.name})")
    return model


def torch_dtype(name: DtypeName) -> torch.dtype:
    """The type that ``--dtype`` names; "auto" is bfloat16 where this CPU packs it."""
    import torch

    from foretell.models.packed import can_pack

    if name == "auto":
        return torch.bfloat16 if can_pack(torch.bfloat16, torch.device("cpu")) else torch.float32
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def describe_heads(heads: Heads) -> str:
    """Kind, mode, depths, size and draft vocabulary in one phrase."""
    config = heads.config
    mode = (
        f"one module for every depth, trained to {config.num_depths}"
        if config.unrolled
        else f"{config.num_modules} modules"
    )
    size = sum(p.numel() for p in heads.parameters()) / 1e6
    vocabulary = "" if heads.draft_ids_V is None else f", draft vocabulary {len(heads.draft_ids_V):,}"
    return f"{config.kind}, {mode}, {size:.1f} M parameters{vocabulary}"


def resolve_depth(model: MTPModel, depth: int | None, heads: str | None) -> int:
    """The depth to decode with: as asked; otherwise what the heads were trained for if ``--heads`` was given, else 0.

    Hints, on stderr, at heads that stay unused. Raises UsageError for a depth the model cannot draft.
    """
    trained = 0 if model.heads is None else model.heads.config.num_depths
    if depth is None:
        depth = trained if heads is not None else 0
    check_depths(model, [depth], "--depth")
    if depth > trained:
        note(f"hint: these heads were trained to depth {trained}; deeper guesses are seldom right and cost time")
    if trained and depth == 0:
        note(f"hint: this model has heads, but depth 0 leaves them unused; --depth {trained} drafts with them")
    return depth


def check_depths(model: MTPModel, depths: list[int], option: str = "--depths") -> None:
    """Raise UsageError, naming the option, where the model cannot draft one of ``depths``."""
    from foretell.decoding.engine import Engine

    try:
        for depth in depths:
            Engine(model).check_depth(depth)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from error


def default_depths(model: MTPModel, deepest: int, first: int = 0) -> list[int]:
    """``first`` to ``deepest``, as far as these heads go; plain decoding alone without heads."""
    if model.heads is None:
        return [0]
    limit = model.heads.config.max_depth
    return list(range(first, min(deepest, limit or deepest) + 1))
