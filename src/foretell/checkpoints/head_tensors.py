"""A head's tensors by place: which there are, and from a family's values to those of our modules."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import nn

from foretell.checkpoints.families import LAYERS, Family, Place
from foretell.checkpoints.folds import centre, is_centred, uncentre
from foretell.checkpoints.head_modules import copies_of
from foretell.checkpoints.layer_names import fill_layer, stored_shapes, with_experts_as_in
from foretell.errors import CheckpointError
from foretell.models.heads import Heads
from foretell.models.sequential import SequentialHeads, SequentialModule

NORMS = ("enorm", "hnorm", "norm")
"""Parts that are a norm's gain."""
_WEIGHTS = ("enorm", "hnorm", "eh_proj", "norm", "output")
"""Parts that are one weight."""


def wanted_tensors(heads: Heads, family: Family, stored: Collection[Place] = ()) -> dict[Place, torch.Size]:
    """Every tensor that ``family`` stores of ``heads``, with its shape; experts as in ``stored``, where it has any."""
    found = {}
    for index, module in enumerate(_modules(heads)):
        for part in _own_weights(family):
            found[shared_place(family, index, part)] = getattr(module, part).weight.shape
        for part, template in _templates(heads).items():
            shapes = stored_shapes(heads.trunk.model, template, getattr(module, part))
            if rests := {place.rest for place in stored if (place.module, place.part) == (index, part)}:
                shapes = with_experts_as_in(rests, shapes)
            for rest, shape in shapes.items():
                found[Place(index, part, rest)] = shape
    return found


@torch.no_grad()
def fill_heads(heads: Heads, family: Family, tensors: Mapping[Place, torch.Tensor]) -> None:
    """Copy stored tensors, complete and of the right shapes, into ``heads``."""
    for index, module in enumerate(_modules(heads)):
        for part in _own_weights(family):
            values = tensors[shared_place(family, index, part)]
            own = getattr(module, part)
            if part in NORMS:
                values = as_stored_gain(values, from_centred=family.centred, to_centred=is_centred(own))
            own.weight.copy_(values)
        for part, template in _templates(heads).items():
            layer = {p.rest: values for p, values in tensors.items() if (p.module, p.part) == (index, part)}
            fill_layer(heads.trunk.model, template, getattr(module, part), layer)


def _own_weights(family: Family) -> list[str]:
    return [part for part in _WEIGHTS if part in family.parts and part not in copies_of(family)]


def shared_place(family: Family, index: int, part: str) -> Place:
    """Place of a weight of module ``index`` outside its layer; the first module's, where it is stored once for all."""
    own = "{k}" in family.parts[part] or "{n}" in family.parts[part]
    return Place(index if own else 0, part, "weight")


def as_stored_gain(weight: torch.Tensor, *, from_centred: bool | None, to_centred: bool | None) -> torch.Tensor:
    """A norm's weight for the other way of storing it, where the two differ; None is like the other."""
    if from_centred is None or to_centred is None or from_centred == to_centred:
        return weight
    return uncentre(weight) if from_centred else centre(weight)


def _modules(heads: Heads) -> list[SequentialModule]:
    if not isinstance(heads, SequentialHeads):
        raise CheckpointError(f"heads of kind {heads.config.kind} have no module in this layout; give sequential ones")
    modules: nn.ModuleList = heads.modules_by_depth
    return list(modules)  # type: ignore[arg-type]


def _templates(heads: Heads) -> dict[str, int]:
    """Each layer of a module, by its part, and the trunk's layer that it is built as."""
    _, indices = heads.trunk.block_config(heads.config.block_layer, heads.config.then_layer)
    return dict(zip(LAYERS, indices, strict=False))
