"""Strip: a plain checkpoint without heads, whose trunk has the same bits."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from foretell.checkpoints.adapter_config import is_adapter
from foretell.checkpoints.families import LAYERS
from foretell.checkpoints.head_modules import COPIES
from foretell.checkpoints.stored import StoredModel
from foretell.convert.claims import without_heads
from foretell.convert.folder import check_target, model_folder, write_converted
from foretell.convert.reload import check_loads
from foretell.convert.report import Conversion
from foretell.convert.shards import Plan, Progress
from foretell.errors import CheckpointError


def strip(
    model: str | PathLike[str],
    target: str | PathLike[str],
    *,
    reload: bool = True,
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> Conversion:
    """Write ``model``, a folder with native heads or ours, without them to ``target``.

    ``reload``: load the result, where memory allows. Raises CheckpointError where there are no heads, where what looks
    like some may be the trunk's own layers, or where ``target`` cannot be written.
    """
    source = StoredModel.open(model_folder(model))
    folder = check_target(target, [source.folder], overwrite)
    _refuse_layers(source)
    ours = is_adapter(source.folder)
    if not source.head_names and not source.claim.num_layers and not ours:
        raise CheckpointError(f"{source.folder}: no heads in it, and its config announces none; it is plain already")
    report = Conversion("strip", str(source.folder), str(folder))
    if ours:
        report.notes.append("the heads' own files (mtp_config.json, mtp.safetensors) were left out")
    if source.claim.num_layers and not source.head_names:
        report.notes.append(f"{source.claim} ({source.claim.key}), but no file held them; it claims none now")
    family = source.family.name if source.family else "unknown"
    plan = Plan(dropped=dict.fromkeys(source.head_names, f"native heads, {family} layout"))

    def check(fresh: Path) -> None:
        report.checks.append(check_loads(source, fresh, with_heads=False) if reload else "not loaded, as asked")

    config = without_heads(source.config, source.num_layers)
    write_converted(source, folder, plan, config, report, check=check, overwrite=overwrite, on_progress=on_progress)
    return report


def _refuse_layers(source: StoredModel) -> None:
    """Layers behind the config's last are heads where something joins a token and a state there, and else a riddle."""
    family, count = source.family, source.num_layers
    places = [family.place(name, count) for name in source.head_names] if family else []
    named = {place.part for place in places if place} - {*LAYERS, *COPIES}
    behind = [name for name in source.head_names if ".layers." in name and "mtp" not in name]
    if behind and not named:
        raise CheckpointError(
            f"{source.folder}: config says {count} layers, and the files hold more ({behind[0]}, ...) that are no "
            "heads in any known layout; mend num_hidden_layers first"
        )
