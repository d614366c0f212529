"""Native heads of the families in the table, as ours: read from the trunk's folder, with the family's conventions."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from pathlib import Path

import torch

from foretell.checkpoints.families import Family, Place
from foretell.checkpoints.files import CheckpointWarning, refuse_not_finite
from foretell.checkpoints.head_modules import copies_of
from foretell.checkpoints.head_tensors import fill_heads, wanted_tensors
from foretell.checkpoints.hub import cached_folder
from foretell.checkpoints.layer_settings import different
from foretell.checkpoints.like_layers import block_like, then_like
from foretell.checkpoints.native import DEPTHS_KEY, claimed_heads, why_lost
from foretell.checkpoints.stored import StoredModel
from foretell.config import HeadsConfig
from foretell.errors import CheckpointError
from foretell.models.build import build_heads, in_type
from foretell.models.heads import Heads
from foretell.models.shards import whole
from foretell.models.support import block_index
from foretell.models.trunk import Trunk

_MOST = 64
_GO_ON = 'Nothing was loaded. To run without these heads, give heads="none" (--heads none)'


def native_folder(trunk: Trunk) -> Path | None:
    """The folder that the trunk was loaded from, or the hub's cache of it; None for a trunk from elsewhere."""
    where = str(trunk.model.config.name_or_path or "")
    if where and (Path(where) / "config.json").is_file():
        return Path(where)
    return cached_folder(where) if where.count("/") == 1 else None


def stored_heads(trunk: Trunk) -> StoredModel | None:
    """The checkpoint of ``trunk``, where native heads lie in it or are announced; None for a plain one."""
    folder = native_folder(trunk)
    if folder is None or not any(folder.glob("*.safetensors")):
        return None
    stored = _opened(folder, tuple((file.name, file.lstat().st_mtime_ns) for file in sorted(folder.iterdir())))
    return stored if stored.head_names or stored.claim.num_layers else None


@functools.lru_cache(maxsize=2)
def _opened(folder: Path, _stamps: tuple[tuple[str, int], ...]) -> StoredModel:
    """A load asks several times, and a large model has a hundred thousand headers."""
    return StoredModel.open(folder)


def can_load_native(trunk: Trunk) -> bool:
    """True where heads lie in the trunk's folder, in a layout that Foretell can run."""
    return stored_heads(trunk) is not None and why_not_native(trunk) is None


def why_not_native(trunk: Trunk) -> str | None:
    """Why heads that the config announces, or the files hold, are not loaded; None where nothing stands against it."""
    stored, claim = stored_heads(trunk), claimed_heads(trunk.model.config.to_dict())
    if stored is None:
        return f"{claim}, whose files cannot be read" if claim.num_layers else None
    announced = f"{claim}; " if claim.num_layers else ""
    if not stored.head_names:
        return announced + why_lost(stored.headers, stored.num_layers)
    if stored.family is None:
        return f"{announced}its MTP tensors have no layout that is known ({', '.join(stored.head_names[:3])}, ...)"
    if why := stored.family.why_blocked(stored.head_names):
        return f"{announced}its {stored.family.name} heads cannot be run: {why}"
    return None


def native_config(trunk: Trunk) -> HeadsConfig:
    """What the native heads are; raises CheckpointError where there are none that can be run."""
    return heads_config(trunk, _known(trunk))


def load_native_heads(trunk: Trunk, dtype: torch.dtype | None = None) -> Heads:
    """The heads that lie in the trunk's own folder, in ``dtype`` or the trunk's; eval mode, no gradients.

    Raises CheckpointError naming tensors that are missing, unexpected, misshapen or not finite.
    """
    return read_heads(trunk, _known(trunk), dtype)


def read_heads(trunk: Trunk, stored: StoredModel, dtype: torch.dtype | None = None) -> Heads:
    """Heads of ``stored``, the trunk's own checkpoint or one with heads for it; as ``load_native_heads``."""
    family = stored.family
    assert family is not None
    heads = in_type(build_heads(trunk, heads_config(trunk, stored)), dtype or trunk.dtype)
    places = {name: family.place(name, stored.num_layers) for name in stored.head_names}
    known = {name: place for name, place in places.items() if place is not None}
    _check_names(trunk, stored, family, heads, known)
    tensors = {}
    for name, tensor in stored.read(known):
        if known[name].part in copies_of(family):
            _compare_copy(trunk, known[name].part, name, tensor)
        else:
            tensors[name] = tensor
    refuse_not_finite("native heads", tensors, _GO_ON)
    fill_heads(heads, family, {known[name]: tensor for name, tensor in tensors.items()})
    return heads.eval().requires_grad_(False)


def heads_config(trunk: Trunk, stored: StoredModel) -> HeadsConfig:
    """What the heads in ``stored`` are, on ``trunk``: the family's conventions, and the layer their block is built as.

    A single module serves every depth, as in vLLM and SGLang; several serve one depth each.
    """
    family = stored.family
    assert family is not None
    num_modules = max(stored.num_modules, 1)
    trained = stored.config.get(DEPTHS_KEY)
    depths = trained if num_modules == 1 and isinstance(trained, int) and 0 < trained <= _MOST else num_modules
    config = HeadsConfig(unrolled=num_modules == 1, num_modules=num_modules, num_depths=depths, **family.conventions)
    block_layer, mlp_layer = block_like(trunk, stored, family)
    index = block_index(trunk.config, block_layer, trunk.name)
    layers = (index, index if mlp_layer == -1 else mlp_layer)
    if others := different(stored.text_config, stored.num_layers, num_modules, layers):
        warnings.warn(
            f"{trunk.name}: its native MTP layers have settings of their own, which are not followed: "
            f"{'; '.join(others)}; text stays exact, and drafts may be right less often",
            CheckpointWarning,
            stacklevel=4,
        )
    then_layer = then_like(trunk, stored, family) if "then" in family.parts else -1
    return replace(config, block_layer=block_layer, mlp_layer=mlp_layer, then_layer=then_layer)


def _known(trunk: Trunk) -> StoredModel:
    stored = stored_heads(trunk)
    if stored is None:
        raise CheckpointError(
            f"{trunk.name}: no native MTP layers are in its files; write [heads] in place of init_from, for fresh ones"
        )
    if why := why_not_native(trunk):
        raise CheckpointError(f"{trunk.name}: {why}. {_GO_ON}")
    return stored


def stored_name(family: Family, place: Place, stored: StoredModel) -> str:
    """Name on disk of what belongs to ``place``."""
    return family.stored(place, stored.num_layers)


def _check_names(trunk: Trunk, stored: StoredModel, family: Family, heads: Heads, known: dict[str, Place]) -> None:
    """Raise where the stored tensors are not those of ``heads``; copies of the trunk's may be there or not."""
    strange = list(set(stored.head_names) - known.keys())
    wanted = wanted_tensors(heads, family, known.values())
    modules = max(stored.claim.num_layers, heads.config.num_modules)
    found = {place: name for name, place in known.items() if place.part not in copies_of(family)}
    problems = {
        "missing": sorted(stored_name(family, place, stored) for place in wanted.keys() - found.keys()),
        "unexpected": sorted([found[place] for place in found.keys() - wanted.keys()] + strange),
        "misshapen": [
            f"{found[place]} {list(stored.headers[found[place]].shape)} instead of {list(wanted[place])}"
            for place in sorted(found.keys() & wanted.keys())
            if stored.headers[found[place]].shape != tuple(wanted[place])
        ],
    }
    if modules > heads.config.num_modules:
        last = (
            f"s {heads.config.num_modules + 1} to {modules}"
            if modules > heads.config.num_modules + 1
            else f" {modules}"
        )
        problems["missing"].append(f"all of module{last}, which the config announces")
    if any(problems.values()):
        lists = "; ".join(f"{len(names)} {kind}: {', '.join(names)}" for kind, names in problems.items() if names)
        raise CheckpointError(
            f"{trunk.name}: its native MTP tensors ({family.name} layout) do not make these heads; {lists}. {_GO_ON}"
        )


def _compare_copy(trunk: Trunk, part: str, name: str, tensor: torch.Tensor) -> None:
    """Warn where a copy of the trunk's embedding or output head is no copy: the engines never read it, nor do we."""
    own = trunk.model.get_input_embeddings() if part == "embedding" else trunk.output_head
    values = whole(own.weight.detach()).cpu()
    if type(values) is not torch.Tensor or values.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return  # quantised: its values are no longer those of the file
    if values.shape != tensor.shape or not torch.equal(values, tensor.to(values.dtype)):
        warnings.warn(
            f"{trunk.name}: {name} is not the trunk's {'embedding' if part == 'embedding' else 'output head'}; the "
            "trunk's is used, as the engines do, and the heads may be right less often than when they were trained",
            CheckpointWarning,
            stacklevel=4,
        )
