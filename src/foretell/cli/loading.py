"""Load a model for a command: type and heads, with one line that says what was found."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from foretell.cli.options import DepthChoice, DtypeName
from foretell.cli.output import note
from foretell.config import DrafterKind
from foretell.errors import UsageError
from foretell.threads import BUSY, share_busy_cores

if TYPE_CHECKING:
    import torch

    from foretell.decoding.drafter_config import DrafterConfig
    from foretell.models.heads import Heads
    from foretell.models.mtp_model import MTPModel


DEFAULT_DEPTH = 3
"""Tokens drafted a step where a drafter without heads is asked for and no depth is."""


def check_model(
    trunk: str, heads: str | None = None, drafter: DrafterKind | None = None, draft_model: str | None = None
) -> None:
    """Raise CheckpointError, before anything heavy is imported, where ``trunk``, ``heads`` or ``draft_model`` names
    nothing there is, and UsageError where ``drafter`` and ``draft_model`` do not go together.

    Then decides how threads wait for each other, while that is still possible.
    """
    wants_model = drafter is not None and "model" in drafter
    if wants_model and draft_model is None:
        raise UsageError(f"--drafter {drafter} needs a draft model; name a small one with --draft-model")
    if draft_model is not None and drafter is not None and not wants_model:
        raise UsageError(f"--draft-model: --drafter {drafter} uses none; leave it out, or give model or ngram+model")
    from foretell.checkpoints.adapter_config import read_adapter_config
    from foretell.checkpoints.source import find_source

    for model in filter(None, (trunk, draft_model)):
        find_source(model)
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


def load_drafter(
    model: MTPModel, drafter: DrafterKind | None, draft_model: str | None, dtype: DtypeName
) -> DrafterConfig | None:
    """What ``--drafter`` and ``--draft-model`` ask for; None = the heads, where there are some.

    Raises UsageError, naming the option, where it does not fit the model.
    """
    from foretell.decoding.drafter_config import DrafterConfig

    if drafter is None and draft_model is None:
        return None
    kind = drafter or "model"
    small = None if draft_model is None else load_model(draft_model, "none", dtype)
    try:
        return DrafterConfig.resolve(DrafterConfig(kind, small), model)
    except UsageError as error:
        raise UsageError(f"{'--drafter' if small is None else '--draft-model'}: {error}") from error


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
                f"hint: {model.trunk.name} has no heads and there is no --drafter, so --depth auto is plain decoding, but "
                "for what a grammar forces"
            )
        return depth
    if depth > trained and (drafter is None or drafter.kind == "heads"):
        note(f"hint: these heads were trained to depth {trained}; deeper guesses are seldom right and cost time")
    if trained and depth == 0:
        note(
            f"hint: this model has heads, but depth 0 leaves them unused; --depth {trained} drafts with them, --depth "
            "auto as far as it pays"
        )
    return depth


def check_depths(
    model: MTPModel, depths: Sequence[DepthChoice], option: str = "--depths", drafter: DrafterConfig | None = None
) -> None:
    """Raise UsageError, naming the option, where the model cannot draft one of ``depths``."""
    from foretell.decoding.engine import Engine

    engine = Engine(model, drafter=drafter)
    for depth in depths:
        with _naming(option):
            engine.check_depth(depth)


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
    if num_nodes is not None:
        if depth == "auto":
            raise UsageError("--nodes: depth auto drafts chains; give a depth in numbers, or leave --nodes out")
        if depth == 0 or num_nodes <= depth:
            raise UsageError(
                f"--nodes: {num_nodes} nodes at depth {depth} are no tree, which has more nodes than it is deep; give "
                + ("a depth of at least 1" if depth == 0 else f"at least {depth + 1}, or leave --nodes out for a chain")
            )
        if engine.drafter is not None and engine.drafter.kind == "ngram":
            raise UsageError("--nodes: look-up (ngram) drafts chains; leave --nodes out, or give another --drafter")
    with _naming("--nodes" if num_nodes else "--exact" if exact else "--depth"):
        engine.check_depth(depth, num_nodes or 0)


@contextmanager
def _naming(option: str) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from error


def default_depths(model: MTPModel, deepest: int, first: int = 0, drafter: DrafterConfig | None = None) -> list[int]:
    """``first`` to ``deepest``, as far as the drafter goes; plain decoding alone without one."""
    from foretell.decoding.engine import Engine

    engine = Engine(model, drafter=drafter)
    if engine.drafter is None:
        return [0]
    limit = engine.drafter.max_depth(model)
    return list(range(first, min(deepest, limit or deepest) + 1))
