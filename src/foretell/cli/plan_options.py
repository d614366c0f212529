"""Options of ``foretell plan``: numbers with a fraction, and where acceptance and hardware come from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter, Token

from foretell.cli.busy import OnBusyChoice
from foretell.errors import CheckpointError, UsageError
from foretell.planning.hardware import HARDWARE, PlanDtype

if TYPE_CHECKING:
    from foretell.planning.acceptance import Acceptance


@dataclass(frozen=True)
class Asked:
    """The command's options; see ``foretell.cli.plan``."""

    hardware: str | None
    devices: int
    dtype: PlanDtype | None
    batch: int
    context: int
    depth: int | None
    num_nodes: int
    acceptance: Acceptance | None
    heads: str | None
    distinct: bool
    draft_vocab: int | None
    draft_cost: float | None
    efficiency: float
    layer_overhead_s: float
    measure: bool
    on_busy: OnBusyChoice


def real(
    text: str, above: float | None = None, at_least: float | None = None, at_most: float | None = None
) -> Parameter:
    """An option that takes a finite number in a range."""

    def convert(type_: Any, tokens: Sequence[Token]) -> float:
        given = tokens[0]
        try:
            value = float(given.value)
        except ValueError:
            value = math.nan
        low = (above is None or value > above) and (at_least is None or value >= at_least)
        if not (math.isfinite(value) and low and (at_most is None or value <= at_most)):
            bounds = [f"{s} {b:g}" for s, b in ((">", above), (">=", at_least), ("<=", at_most)) if b is not None]
            raise UsageError(
                f'{given.keyword}: "{given.value:.80}" is not allowed; give a number {" and ".join(bounds)}'.rstrip()
            )
        return value

    return Parameter(converter=convert, help=text)


def is_file_name(text: str) -> bool:
    """True for what can only be meant as a report."""
    return text.endswith(".json") or "/" in text


def named_file(option: str, path: Path, writer: str) -> Path:
    """The path; raises CheckpointError, naming the option and what writes such a file, where there is none."""
    if not path.is_file():
        raise CheckpointError(f"{option}: {path} is no file; give one that {writer} wrote")
    return path


def find_acceptance(
    text: str | None, unconditional: bool, batch: int, nodes: int, depth: int | None
) -> Acceptance | None:
    """What ``--acceptance`` says, None where it is left out. Raises UsageError, DataError or CheckpointError."""
    from foretell.planning.acceptance import Acceptance, read_acceptance

    if text is None:
        if unconditional:
            raise UsageError("--unconditional says how --acceptance is meant, and there is none; give both")
        return None
    if not is_file_name(text):
        return Acceptance.parse(text, unconditional)
    if unconditional:
        raise UsageError("--unconditional is for numbers; a file says itself what its shares are, so leave it out")
    return read_acceptance(
        named_file("--acceptance", Path(text), "foretell bench or probe --json"), batch, nodes, depth
    )


def deepest(depth: int | None, acceptance: Acceptance | None, heads_depth: int | None, default: int) -> int:
    """Depths to plan for: as asked, else ``default`` as far as acceptance and heads go. Raises UsageError."""
    limits = [
        (
            acceptance.max_depth if acceptance else None,
            "--acceptance is known for {} only; give more shares, or one for all",
        ),
        (heads_depth, "the heads have modules for {} only"),
    ]
    for limit, words in limits:
        if limit is not None and depth is not None and depth > limit:
            known = f"{limit} depth{'s' * (limit > 1)}"
            raise UsageError(f"--depth: {depth} is too deep; {words.format(known)}, or take a depth up to {limit}")
    known_limits = [limit for limit, _ in limits if limit is not None]
    return min([default, *known_limits]) if depth is None else depth


def check_options(
    model: str | None,
    hardware: str | None,
    devices: int,
    depth: int | None,
    nodes: int | None,
    measure: bool,
    on_busy: OnBusyChoice,
    against: Path | None,
) -> None:
    """Raise UsageError for options that do not go together, before anything heavy is imported."""
    if model is None and against is None:
        raise UsageError(
            "MODEL is missing; for example: foretell plan llama-3-8b --hardware h100 --acceptance 0.8, or give "
            "a file of bench as --against alone"
        )
    if model is None and (measure or hardware is not None):
        raise UsageError(f"{'--measure' if measure else '--hardware'} needs a model to predict for; name it first")
    if hardware is not None and hardware not in HARDWARE and not is_file_name(hardware):
        raise UsageError(
            f'--hardware: "{hardware:.80}" is not known; give {", ".join(HARDWARE)}, or a file (.json) that '
            "foretell plan MODEL --measure --json wrote"
        )
    if on_busy == "abort" and not measure:
        raise UsageError("--on-busy: nothing is timed without --measure; give it too, or leave this out")
    is_here = measure or (hardware is not None and is_file_name(hardware))
    if measure and hardware is not None:
        raise UsageError("--measure takes this machine, and --hardware another; leave one of them out")
    if is_here and devices != 1:
        raise UsageError(f"--devices: {devices} is not allowed with a measured machine; it is one")
    if nodes is not None and (depth is None or nodes <= depth):
        given = "no --depth" if depth is None else f"--depth {depth}"
        raise UsageError(f"--nodes: a tree of {nodes} with {given} is not allowed; give fewer levels than nodes")
