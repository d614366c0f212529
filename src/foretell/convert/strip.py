"""Strip: a plain checkpoint without heads, whose trunk has the same bits."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from foretell.checkpoints.adapter_config import is_adapter
from foretell.checkpoints.stored import StoredModel
from foretell.convert.claims import without_heads
from foretell.convert.folder import check_target, write_converted
from foretell.convert.report import Conversion
from foretell.convert.shards import Plan, Progress
from foretell.errors import CheckpointError


def strip(
    model: str | PathLike[str],
    target: str | PathLike[str],
    *,
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> Conversion:
    """Write ``model``, a folder with native heads or ours, without them to ``target``.

    Raises CheckpointError where there are none, or where ``target`` cannot be written.
    """
    source = StoredModel.open(model)
    check_target(target, [source.folder], overwrite)
    ours = is_adapter(source.folder)
    if not source.head_names and not source.claim.num_layers and not ours:
        raise CheckpointError(f"{source.folder}: no heads in it, and its config announces none; it is plain already")
    report = Conversion("strip", str(source.folder), str(Path(target)))
    if ours:
        report.notes.append("the heads' own files (mtp_config.json, mtp.safetensors) were left out")
    if source.claim.num_layers and not source.head_names:
        report.notes.append(f"{source.claim} ({source.claim.key}), but no file held them; it claims none now")
    family = source.family.name if source.family else "unknown"
    plan = Plan(dropped=dict.fromkeys(source.head_names, f"native heads, {family} layout"))
    write_converted(
        source, target, plan, without_heads(source.config, source.num_layers), report, on_progress=on_progress
    )
    return report
