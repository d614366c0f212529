"""A decoder layer's tensors under the names that the family's checkpoints have: experts one by one, older names.

transformers keeps experts fused in memory and knows how it stores them; naming goes through its own save. Fusing is
ours, and is checked by naming the result again. ``model`` is a transformers causal LM; it may be one without values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from transformers.core_model_loading import ConversionOps, revert_weight_conversion

from foretell.models.quantised import stored_tensors

_EXPERT = re.compile(r"(?P<experts>.*experts)\.(?P<number>\d{1,9})\.(?P<projection>gate|up|down)_proj\.weight")


def stored_layer(model: Any, index: int, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """``tensors`` of a layer, by their names in memory, under those that layer ``index`` of ``model`` is stored by."""
    at = _layer_name(model, index)
    named = {f"{at}.{name}": tensor for name, tensor in tensors.items()}
    with patch.object(model, "_weight_conversions", _reversible(model), create=True):
        stored = revert_weight_conversion(model, named)
    where = re.compile(rf".*?\.{index}\.(.+)")
    return {where.fullmatch(name)[1]: tensor for name, tensor in stored.items()}  # type: ignore[index]


def stored_name(model: Any, name: str) -> str:
    """The name under which checkpoints of ``model`` hold its tensor ``name``; of one that is only renamed."""
    with patch.object(model, "_weight_conversions", _reversible(model), create=True):
        [found] = revert_weight_conversion(model, {name: torch.empty(0, device="meta")})
    return str(found)


def stored_shapes(model: Any, index: int, layer: nn.Module) -> dict[str, torch.Size]:
    """Names and shapes with which ``layer``, built as the model's layer ``index``, is stored. No value is copied."""
    own = stored_tensors(layer)
    empty = {name: torch.empty(tensor.shape, dtype=tensor.dtype, device="meta") for name, tensor in own.items()}
    return {name: tensor.shape for name, tensor in stored_layer(model, index, empty).items()}


def with_experts_as_in(names: Collection[str], shapes: Mapping[str, torch.Size]) -> dict[str, torch.Size]:
    """``shapes`` with experts one by one, or all in one tensor, whichever ``names`` has: files have either."""
    one_by_one = any(map(_EXPERT.fullmatch, names))
    gated = any(name.endswith("gate_proj.weight") and _EXPERT.fullmatch(name) for name in shapes)
    numbers = [int(found["number"]) for name in shapes if (found := _EXPERT.fullmatch(name))]
    result = {}
    for name, shape in shapes.items():
        found = _EXPERT.fullmatch(name)
        if found and not one_by_one:
            width, size = shape
            fused = fused_name(name, gated)
            result[fused] = torch.Size((max(numbers) + 1, 2 * width if "gate_up" in fused else width, size))
        elif one_by_one and name.endswith(("experts.gate_up_proj", "experts.up_proj", "experts.down_proj")):
            prefix, _, projection = name.rpartition(".")
            num_experts, rows, size = shape
            parts = projection.removesuffix("_proj").split("_")
            one = torch.Size((rows // len(parts), size))
            result |= {f"{prefix}.{i}.{part}_proj.weight": one for i in range(num_experts) for part in parts}
        else:
            result[name] = shape
    return result


@torch.no_grad()
def fill_layer(model: Any, index: int, layer: nn.Module, stored: Mapping[str, torch.Tensor]) -> None:
    """Copy ``stored`` tensors, complete and of the right shapes, into ``layer``; raises ValueError where none fits."""
    own = layer.state_dict()
    names = _names_in_memory(model, index, own)
    fused = _fused(stored)
    for name, tensor in own.items():
        source = fused.get(name, stored.get(names.get(name, name)))
        if source is None or source.shape != tensor.shape:
            raise ValueError(f"{name} has no counterpart among the stored tensors")
        tensor.copy_(source)


def _reversible(model: Any) -> list[Any] | None:
    """The conversions that the model was loaded with, without those of its quantisation, which know no way back."""
    conversions = getattr(model, "_weight_conversions", None)
    if conversions is None:
        return None
    one_way = ConversionOps.reverse_op
    return [c for c in conversions if all(type(op).reverse_op is not one_way for op in getattr(c, "operations", ()))]


def fused_name(name: str, gated: bool = True) -> str:
    """Name of the tensor in memory that holds the stored one; the same for all but experts, ``gated`` ones or not."""
    found = _EXPERT.fullmatch(name)
    if found is None:
        return name
    projection = "gate_up" if gated and found["projection"] != "down" else found["projection"]
    return f"{found['experts']}.{projection}_proj"


def _names_in_memory(model: Any, index: int, own: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Name in memory -> stored name, for tensors that are only renamed."""
    names = {}
    for name, tensor in own.items():
        stored = stored_layer(model, index, {name: torch.empty_like(tensor, device="meta")})
        if len(stored) == 1:
            names[name] = next(iter(stored))
    return names


def _fused(stored: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Experts stored one by one, as (E, 2I, D) ``gate_up_proj`` and (E, D, I) ``down_proj``; or (E, I, D) ``up_proj``,
    where they have no gate.
    """
    experts: dict[str, dict[str, dict[int, torch.Tensor]]] = {}
    for name, tensor in stored.items():
        if found := _EXPERT.fullmatch(name):
            projections = experts.setdefault(found["experts"], {"gate": {}, "up": {}, "down": {}})
            projections[found["projection"]][int(found["number"])] = tensor
    fused: dict[str, torch.Tensor] = {}
    for prefix, projections in experts.items():
        stacked = {
            name: torch.stack([found[number] for number in sorted(found)])
            for name, found in projections.items()
            if found
        }
        if "gate" in stacked:
            stacked["gate_up"] = torch.cat([stacked.pop("gate"), stacked.pop("up")], dim=1)
        fused |= {f"{prefix}.{name}_proj": tensor for name, tensor in stacked.items()}
    return fused


def _layer_name(model: Any, index: int) -> str:
    layer = model.get_decoder().layers[index]
    return next(name for name, module in model.named_modules() if module is layer)
