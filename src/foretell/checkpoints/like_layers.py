"""Which of the trunk's layers native heads are built as: those whose tensors they have, of the kind announced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from foretell.checkpoints.families import Family
from foretell.checkpoints.layer_names import fused_name, stored_shapes
from foretell.checkpoints.stored import StoredModel
from foretell.errors import CheckpointError
from foretell.models.block_layer import block_layer_of
from foretell.models.quantised import stored_tensors
from foretell.models.trunk import Trunk

NamesOf = Callable[[int], frozenset[str]]
"""The names under which a layer of the trunk is stored, experts as one."""

_MLP = "mlp."


def block_like(trunk: Trunk, stored: StoredModel, family: Family) -> tuple[int, int]:
    """(block_layer, mlp_layer) of HeadsConfig; -1 for the usual block, and for a block with an MLP of its own.

    Where the config announces a kind, only layers of that kind are looked at. Of those that have all of a module's
    tensors the usual one comes first. Where none has, and the MLP of any layer joined to the rest of one fits better,
    those two. Raises CheckpointError for modules of several kinds, and of a kind that the trunk has not.
    """
    usual = trunk.block_config()[1][0]
    names = _names(stored, family, "layer")
    every = _ordered(trunk, usual)
    layers = _of_kind(trunk, every, _announced_kind(trunk, stored))
    names_of = _names_of(trunk)
    index, num_strange = _nearest(names_of, layers, names)
    mlp_layer = -1
    if num_strange:
        within = {name for name in names if name.startswith(_MLP)}
        rest, rest_strange = _nearest(names_of, layers, names - within, mlp=False)
        mlp, mlp_strange = _nearest(names_of, every, within, mlp=True)
        if rest_strange + mlp_strange < num_strange:
            index, mlp_layer = rest, mlp
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


def _of_kind(trunk: Trunk, layers: list[int], kind: str | None) -> list[int]:
    kinds = list(getattr(trunk.config, "layer_types", None) or [])
    if kind is None or len(kinds) != len(layers):
        return layers
    found = [index for index in layers if kinds[index] == kind]
    if not found:
        raise CheckpointError(
            f"{trunk.name}: its native MTP layers are announced as {kind}, and the trunk has no such layer, only "
            f"{', '.join(dict.fromkeys(map(str, kinds)))}"
        )
    return found


def _announced_kind(trunk: Trunk, stored: StoredModel) -> str | None:
    """What the config says of the modules' layers: in a list of its own, or behind the trunk's layers."""
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
