"""Load a model for a command: type and heads, with one line that says what was found."""

from __future__ import annotations

import re
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
    from foretell.decoding.drafter_config import DrafterConfig
    from foretell.models.heads import Heads
    from foretell.models.mtp_model import MTPModel


_TYPED = {"num_nodes": "--nodes", "max_batch": "--batch", "draft_model": "--draft-model", "max_tokens": "--max-tokens"}
"""Options that have another name in Python."""


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
    from foretell.kernels.build import KernelWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", CheckpointWarning)
        warnings.simplefilter("always", KernelWarning)
        model = load(
            trunk,
            heads=heads,
            dtype=resolved_dtype(dtype),
            pack=pack,
            on_progress=note,
        )
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
    small = None if draft_model is None else load_model(draft_model, None, dtype)
    with naming_option("--drafter" if small is None else "--draft-model"):
        return DrafterConfig.resolve(DrafterConfig(kind, small), model)


def resolved_dtype(name: DtypeName) -> str:
    """The type that ``--dtype`` names; "auto" is bfloat16 where this CPU multiplies it."""
    from foretell.models.packed import has_bf16_units

    if name != "auto":
        return name
    return "bfloat16" if has_bf16_units() else "float32"


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


def check_depths(
    model: MTPModel, depths: Sequence[DepthChoice], option: str = "--depths", drafter: DrafterConfig | None = None
) -> None:
    """Raise UsageError, naming the option, where the model cannot draft one of ``depths``."""
    from foretell.decoding.engine import Engine

    engine = Engine(model, drafter=drafter)
    for depth in depths:
        with naming_option(option):
            engine.check_depth(depth)


@contextmanager
def naming_option(option: str) -> Iterator[None]:
    """A UsageError from below gets the name of the option that led to it, and speaks of options as they are typed."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{option}: {as_typed(str(error))}") from error


def as_typed(message: str) -> str:
    """A message of the library with options as they are typed."""
    text = re.sub(r"\bnum_nodes (\d+)", r"\1 nodes", message)
    for name, typed in _TYPED.items():
        text = re.sub(rf"\b{name}\b", typed, text)
    return text


def default_depths(model: MTPModel, deepest: int, first: int = 0, drafter: DrafterConfig | None = None) -> list[int]:
    """``first`` to ``deepest``, as far as the drafter goes; plain decoding alone without one."""
    from foretell.decoding.engine import Engine

    engine = Engine(model, drafter=drafter)
    if engine.drafter is None:
        return [0]
    limit = engine.drafter.max_depth(model)
    return list(range(first, min(deepest, limit or deepest) + 1))
