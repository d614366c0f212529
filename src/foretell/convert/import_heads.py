"""Import: native heads, or heads from elsewhere, as an adapter."""

from __future__ import annotations

import functools
from os import PathLike
from pathlib import Path

import torch

from foretell.checkpoints.adapter import disk_name, load_adapter, save_adapter
from foretell.checkpoints.head_modules import copies_of
from foretell.checkpoints.layer_names import fused_name
from foretell.checkpoints.load import load_trunk
from foretell.checkpoints.loose import LooseHeads, open_heads, refuse_odd, why_foreign
from foretell.checkpoints.medusa_file import medusa_heads
from foretell.checkpoints.meta_heads import meta_heads
from foretell.checkpoints.native_heads import read_heads, stored_heads, why_not_native
from foretell.checkpoints.stored import FLOATS, StoredModel
from foretell.convert.folder import check_adapter_target
from foretell.convert.report import Conversion
from foretell.errors import CheckpointError
from foretell.models.heads import Heads
from foretell.models.trunk import Trunk


def import_heads(
    heads: str | PathLike[str],
    target: str | PathLike[str],
    trunk: str | PathLike[str] | None = None,
    *,
    overwrite: bool = False,
) -> Conversion:
    """Write the native heads in the model folder ``heads`` to the adapter ``target``, in the widest type that
    they are stored in.

    With ``trunk`` given, ``heads`` may be heads alone: a folder or file of a family's tensors, of speculators, Medusa's
    medusa_lm_head.pt, or Meta's checkpoint. Raises CheckpointError, UnsupportedModel.
    """
    check_adapter_target(target, [Path(heads)], overwrite)
    loaded = load_trunk(trunk if trunk is not None else heads)
    stored = stored_heads(loaded) if trunk is None else _loose(loaded, heads)
    report = Conversion("import", str(heads), str(target))
    if stored is None:
        raise CheckpointError(f"{heads}: no native heads in its files, and its config announces none")
    if trunk is None and (why := why_not_native(loaded)):
        raise CheckpointError(f"{heads}: {why}")
    if stored.family is None:
        raise CheckpointError(f"{heads}: heads {why_foreign(stored.headers)}")
    found, names = _read(loaded, stored)
    report.renamed = {name: disk_name(ours, found.config.kind) for name, ours in names.items()}
    report.dropped = {
        name: "the trunk's own embedding and output head are used"
        for name in stored.head_names
        if (place := stored.family.place(name, stored.num_layers)) and place.part in copies_of(stored.family)
    }
    if isinstance(stored, LooseHeads):
        report.dropped |= {name: "no tensor of heads" for name in stored.headers if name not in stored.head_names}
    dtype = next(found.parameters()).dtype
    training = {"imported_from": Path(heads).name, "family": stored.family.name}
    save_adapter(found, target, training, dtype=dtype, overwrite=overwrite)
    again = load_adapter(loaded, target, dtype).state_dict()
    if not all(torch.equal(again[name], tensor) for name, tensor in found.state_dict().items()):
        raise CheckpointError(f"{target}: reads back as something else than {heads}; remove it, and please report this")
    report.checks.append(f"read back: {len(again)} tensors equal")
    report.notes.append(f"conventions of the {stored.family.name} family: {_conventions(found)}")
    return report


def _read(trunk: Trunk, stored: StoredModel) -> tuple[Heads, dict[str, str]]:
    """Heads in the type they are stored in, and our name by the stored one."""
    family = stored.family
    assert family is not None
    if family.name in ("medusa", "meta"):
        tensors = dict(stored.read(stored.head_names))
        refuse_odd(tensors)
        made, renamed = (medusa_heads if family.name == "medusa" else meta_heads)(trunk, tensors)
        return made.to(next(iter(tensors.values())).dtype), renamed
    types = [stored.dtype(name) for name in stored.head_names if stored.headers[name].dtype in FLOATS]
    widest = functools.reduce(torch.promote_types, types) if types else None
    return read_heads(trunk, stored, widest), _renamed(stored)


def _renamed(stored: StoredModel) -> dict[str, str]:
    family = stored.family
    assert family is not None
    found = {}
    for name in stored.head_names:
        place = family.place(name, stored.num_layers)
        if place is not None and place.part not in copies_of(family):
            found[name] = f"modules_by_depth.{place.module}.{place.part}.{fused_name(place.rest)}"
    return found


def _conventions(heads: Heads) -> str:
    shown = ("hidden_source", "concat", "feedback", "final_norm", "zero_first")
    values = heads.config.conventions()
    return ", ".join(f"{name} {values[name]}" for name in shown if name in values)


def _loose(trunk: Trunk, heads: str | PathLike[str]) -> LooseHeads:
    has_kinds = bool(getattr(trunk.config, "layer_types", None))
    return open_heads(Path(heads).expanduser(), type(trunk.model).__name__, trunk.num_layers, has_kinds=has_kinds)
