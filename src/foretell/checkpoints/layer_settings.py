"""Settings that hold one value a layer; Step-3.5 has values for its heads behind those of the trunk's layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Layers = tuple[int, int]
"""The trunk's layer that a module is built as, and the one whose MLP it has; the same but for ``mlp_layer``."""

_OF_ATTENTION = ("layer_types", "partial_rotary_factors", "rope_theta", "use_rope_layers")
_OF_MLP = ("mlp_layer_types", "swiglu_limits", "swiglu_limits_shared")
LAYER_SETTINGS = (*_OF_ATTENTION, *_OF_MLP)
_KINDS = ("layer_types", "mlp_layer_types")
_SPARSE = "moe_layers_enum"
"""Step's numbers of the layers with experts, in a list or joined by commas."""


def padded(config: Mapping[str, Any], num_layers: int, num_modules: int, layers: Layers) -> dict[str, Any]:
    """The settings of ``config`` that have a value for each of the trunk's layers alone, with values for modules."""
    found: dict[str, Any] = {}
    for key, index in _indices(layers):
        values = config.get(key)
        if isinstance(values, list) and len(values) == num_layers:
            found[key] = values + [values[index]] * num_modules
    sparse = config.get(_SPARSE)
    if sparse is not None:
        numbers: list[Any] = sparse.split(",") if isinstance(sparse, str) else list(sparse)
        if str(layers[1]) in [str(number).strip() for number in numbers]:
            numbers += range(num_layers, num_layers + num_modules)
            found[_SPARSE] = ",".join(map(str, numbers)) if isinstance(sparse, str) else numbers
    return found


def different(config: Mapping[str, Any], num_layers: int, num_modules: int, layers: Layers) -> list[str]:
    """In words, what ``config`` says of its modules and not of the layers that they are built as; kinds apart."""
    found = []
    for key, index in _indices(layers):
        values = config.get(key)
        if key in _KINDS or not isinstance(values, list) or len(values) < num_layers:
            continue
        own = values[num_layers : num_layers + num_modules]
        if any((value or None) != (values[index] or None) for value in own):  # 0 is no limit, as None is
            found.append(f"{key} {', '.join(map(str, own))} (layer {index}: {values[index]})")
    return found


def _indices(layers: Layers) -> Iterator[tuple[str, int]]:
    for key in LAYER_SETTINGS:
        yield key, layers[1] if key in _OF_MLP else layers[0]
