"""What a config says of native heads: taken out of it, or copied from another."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from foretell.checkpoints.families import family_of_architecture
from foretell.checkpoints.layer_settings import LAYER_SETTINGS
from foretell.checkpoints.native import CLAIMS, DEPTHS_KEY
from foretell.checkpoints.quantisation import exceptions, quantisation_of
from foretell.convert.mimo_layout import ARCHITECTURE, PLAIN_CLASSES

MODELING_FILE, CLASS_PREFIX = "modeling_foretell.py", "Foretell"
"""The remote code of an export in the deepseek-style layout, and how its class is called: before the trunk's own."""

LISTS = ("mtp_layer_types", "mtp_mlp_layer_types")
"""Settings that describe the layers of native heads, one entry a module."""

_OTHERS = ("mtp_hybrid_override_pattern", "mtp_layers_block_type", "num_mtp_modules", "mtp_num_layers", DEPTHS_KEY)
"""Settings of single families, which say no more without heads."""


def without_heads(config: Mapping[str, Any], num_layers: int) -> dict[str, Any]:
    """``config`` that announces no heads, at the top and within ``text_config``."""
    changed = copy.deepcopy(dict(config))
    for part in _parts(changed):
        for key in CLAIMS:
            if key in part:
                part[key] = 0
        for key in (*LISTS, *_OTHERS):
            part.pop(key, None)
        for key in LAYER_SETTINGS:
            if isinstance(part.get(key), list) and len(part[key]) > num_layers:
                part[key] = part[key][:num_layers]
    return _plain_class(changed)


def with_heads_of(config: Mapping[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    """``config`` that announces the heads which ``original`` does, by the same settings in the same place.

    Its class is the original's where that alone tells engines of the heads: a MiMo is saved as the Qwen2 or the Llama
    that it is without.
    """
    changed = copy.deepcopy(dict(config))
    nested, own = original.get("text_config"), changed.get("text_config")
    inner = own if isinstance(own, dict) else changed
    pairs = [(original, changed), (nested, inner)] if isinstance(nested, Mapping) else [(original, inner)]
    for source, target in pairs:
        target |= {key: source[key] for key in (*CLAIMS, *LISTS, *_OTHERS) if key in source}
        for key in LAYER_SETTINGS:
            theirs, ours = source.get(key), target.get(key)
            if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) > len(ours):
                target[key] = ours + theirs[len(ours) :]
    if family_of_architecture(config) is None and family_of_architecture(original) is not None:
        changed["architectures"] = original["architectures"]
    return changed


def with_plain_heads(config: Mapping[str, Any], modules: list[str]) -> dict[str, Any]:
    """``config`` whose quantisation leaves out ``modules``, matrices of the heads that are stored as plain numbers.

    As it is where the trunk is not quantised.
    """
    said = quantisation_of(config)
    if said is None or not modules:
        return dict(config)
    changed = copy.deepcopy(dict(config))
    for part in _parts(changed):
        for key in ("quantization_config", "compression_config"):
            if isinstance(part.get(key), dict):
                named = part[key].get(said.exempt_key) or ["lm_head"]
                part[key][said.exempt_key] = list(dict.fromkeys([*named, *exceptions(said.method, modules)]))
    return changed


def _plain_class(config: dict[str, Any]) -> dict[str, Any]:
    """Undo what an export did to the trunk's class: it had to name one that knows of the heads."""
    listed = config.get("architectures")
    names = [str(name) for name in listed] if isinstance(listed, list) else []
    if names == [ARCHITECTURE] and config.get("model_type") in PLAIN_CLASSES:
        return config | {"architectures": [PLAIN_CLASSES[config["model_type"]]]}
    if is_remote(config):
        return {key: value for key, value in config.items() if key != "auto_map"} | {
            "architectures": [name.removeprefix(CLASS_PREFIX) for name in names]
        }
    return config


def is_remote(config: Mapping[str, Any]) -> bool:
    """True for an export in the deepseek-style layout, whose class is in a file of ours."""
    auto_map = config.get("auto_map")
    classes = list(auto_map.values()) if isinstance(auto_map, Mapping) else []
    return any(str(name).startswith(f"{MODELING_FILE.removesuffix('.py')}.") for name in classes)


def _parts(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield config
    if isinstance(config.get("text_config"), dict):
        yield config["text_config"]
