"""Which of the trunk's layers native heads are built as: those whose tensors they have, of the kind announced."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any

from foretell.checkpoints.families import Family, family_of_architecture
from foretell.checkpoints.files import CheckpointWarning
from foretell.checkpoints.layer_names import fused_name, stored_shapes
from foretell.checkpoints.stored import StoredModel
from foretell.errors import CheckpointError
from foretell.models.block_layer import block_layer_of
from foretell.models.quantised import stored_tensors
from foretell.models.support import ATTENTION_KINDS
from foretell.models.trunk import Trunk

NamesOf = Callable[[int], frozenset[str]]
"""The names under which a layer of the trunk is stored, experts as one."""

_MLP = "mlp."


def block_like(trunk: Trunk, stored: StoredModel, family: Family) -> tuple[int, int]:
    """(block_layer, mlp_layer) of HeadsConfig; -1 for the usual block, and for a block with an MLP of its own.

    Where a kind is announced, or known of the family, only layers of that kind are looked at. Of those that have all
    of a module's tensors the usual one comes first. Where none has, and the MLP of any layer joined to the rest of one
    fits better, those two. Warns where the tensors fit layers of two kinds and nothing says which is meant. Raises
    CheckpointError for modules of several kinds, and where the config announces one that the trunk has not.
    """
    usual = trunk.block_config()[1][0]
    names = _names(stored, family, "layer")
    every = _ordered(trunk, usual)
    announced = _announced_kind(trunk, stored)
    assumed = _assumed_kind(trunk, stored, family) if announced is None else None
    layers = _of_kind(trunk, every, announced or assumed)
    names_of = _names_of(trunk)
    index, num_strange = _nearest(names_of, layers, names)
    mlp_layer = -1
    if num_strange:
        within = {name for name in names if name.startswith(_MLP)}
        rest, rest_strange = _nearest(names_of, layers, names - within, mlp=False)
        mlp, mlp_strange = _nearest(names_of, every, within, mlp=True)
        if rest_strange + mlp_strange < num_strange:
            index, mlp_layer = rest, mlp
    if announced is None and assumed is None:
        _warn_of_doubt(trunk, index)
    return -1 if index == usual else index, mlp_layer


def then_like(trunk: Trunk, stored: StoredModel, family: Family) -> int:
    """then_layer of HeadsConfig, where the family has one."""
    usual = trunk.block_config()[1][0]
    return _nearest(_names_of(trunk), _ordered(trunk, usual), _names(stored, family, "then"))[0]


def _names(stored: StoredModel, family: Family, part: str) -> set[str]:
    places = (family.place(name, stored.num_layers) for name in stored.head_names)
    return {fused_name(place.rest) for place in places if place and place.part == part and place.module == 0}


def _names_of(trunk: Trunk) -> NamesOf:
    found: dict[frozenset[str], frozenset[str]] = {}  # naming hundreds of experts takes long, and most layers are alike

    def names(index: int) -> frozenset[str]:
        layer = block_layer_of(trunk.decoder, index)
        own = frozenset(stored_tensors(layer))
        if own not in found:
            found[own] = frozenset(map(fused_name, stored_shapes(trunk.model, index, layer)))
        return found[own]

    return names


def _nearest(
    names_of: NamesOf, layers: Sequence[int], names: Collection[str], mlp: bool | None = None
) -> tuple[int, int]:
    """The layer whose names, or those of its MLP or of all but that, are most like ``names``; how many are not."""
    strange: dict[int, int] = {}
    for index in layers:
        there = {name for name in names_of(index) if mlp is None or name.startswith(_MLP) == mlp}
        strange[index] = len(there ^ set(names))
        if not strange[index]:
            break
    best = min(strange, key=strange.__getitem__)
    return best, strange[best]


def _ordered(trunk: Trunk, usual: int) -> list[int]:
    """The trunk's layers, the usual one first, then from the last to the first."""
    return [usual, *(i for i in reversed(range(len(trunk.decoder.layers))) if i != usual)]


def _kinds(trunk: Trunk) -> list[str]:
    """The kind of every layer, where the config says one of each; else none."""
    kinds = list(getattr(trunk.config, "layer_types", None) or [])
    return [str(kind) for kind in kinds] if len(kinds) == len(trunk.decoder.layers) else []


def _of_kind(trunk: Trunk, layers: list[int], kind: str | None) -> list[int]:
    kinds = _kinds(trunk)
    if kind is None or not kinds:
        return layers
    found = [index for index in layers if kinds[index] == kind]
    if not found:
        raise CheckpointError(
            f"{trunk.name}: its native MTP layers are announced as {kind}, and the trunk has no such layer, only "
            f"{', '.join(dict.fromkeys(kinds))}"
        )
    return found


def _announced_kind(trunk: Trunk, stored: StoredModel) -> str | None:
    """What the heads' config says of the modules' layers: in a list of its own, or behind the trunk's layers."""
    own, padded = (stored.text_config.get(key) for key in ("mtp_layer_types", "layer_types"))
    kinds: list[Any] = []
    if isinstance(own, list) and own:
        kinds = own[: stored.num_modules]
    elif isinstance(padded, list):
        kinds = padded[stored.num_layers :]
    if len(set(map(str, kinds))) > 1:
        raise CheckpointError(
            f"{trunk.name}: its native MTP layers are of several kinds ({', '.join(map(str, kinds))}); heads whose "
            "layers are all of one are supported"
        )
    return str(kinds[0]) if kinds else None


def _assumed_kind(trunk: Trunk, stored: StoredModel, family: Family) -> str | None:
    """What the trunk's config, with the defaults of its class, or the family says; None where the trunk has none."""
    of_trunk = set(map(str, (getattr(trunk.config, "mtp_layer_types", None) or [])[: stored.num_modules]))
    if len(of_trunk) == 1:
        kind = of_trunk.pop()
    else:
        kind = family.layer_kind if family is family_of_architecture(stored.config) else ""
    return kind if kind in _kinds(trunk) else None


def _warn_of_doubt(trunk: Trunk, index: int) -> None:
    """Warn where another layer differs from layer ``index`` in kind alone, its MLP apart."""
    kinds = _kinds(trunk)
    if not kinds or kinds[index] not in ATTENTION_KINDS:
        return

    def shapes(layer: int) -> dict[str, Any]:
        own = stored_tensors(block_layer_of(trunk.decoder, layer))
        return {name: tensor.shape for name, tensor in own.items() if not name.startswith(_MLP)}

    others = [i for i, kind in enumerate(kinds) if kind in ATTENTION_KINDS and kind != kinds[index]]
    if any(shapes(other) == shapes(index) for other in others):
        warnings.warn(
            f"{trunk.name}: no config says whether its native MTP layers are {' or '.join(ATTENTION_KINDS)}, and their "
            f"tensors fit both; they are built as {kinds[index]}. Where that is wrong drafts are right less often: "
            "write mtp_layer_types into config.json",
            CheckpointWarning,
            stacklevel=5,
        )
