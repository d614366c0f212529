"""A trunk from scratch: a random causal LM of any transformers config, or of a size known by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, NoReturn

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from foretell.checkpoints.files import one_line
from foretell.errors import UnsupportedModel, UsageError
from foretell.models.trunk import Trunk
from foretell.training.place import Place
from foretell.training.recipe import ModelConfig


def _llama(hidden_size: int, num_layers: int, num_heads: int) -> dict[str, Any]:
    """A llama with two query heads a key head and an MLP of about 8/3 of its width, in steps of 64."""
    return {
        "model_type": "llama",
        "hidden_size": hidden_size,
        "intermediate_size": (hidden_size * 8 // 3 + 63) // 64 * 64,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "num_key_value_heads": max(1, num_heads // 2),
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
    }


PRESETS = {
    "1m": _llama(128, 4, 4),
    "5m": _llama(256, 6, 4),
    "15m": _llama(384, 8, 6),
    "30m": _llama(512, 10, 8),
    "100m": _llama(768, 14, 12),
    "300m": _llama(1024, 24, 16),
}
"""Sizes by name: parameters of the layers, roughly; the embedding comes on top."""


def new_trunk(model: ModelConfig, tokenizer: Any, seed: int, name: str) -> Trunk:
    """Random float32 weights under ``seed``; vocabulary and special tokens are the tokenizer's.

    Raises UsageError for sizes that do not go together.
    """
    values = {**_special_tokens(tokenizer), "vocab_size": len(tokenizer), **_values(model)}
    model_type = values.pop("model_type")
    if type(values["vocab_size"]) is not int or values["vocab_size"] < len(tokenizer):
        raise UsageError(
            f"[model] vocab_size is {values['vocab_size']!r}; allowed: {len(tokenizer)} (the tokenizer's) or more"
        )
    try:
        config = AutoConfig.for_model(model_type, **values)
        torch.manual_seed(seed)
        built = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        built.generation_config.eos_token_id = values["eos_token_id"]
        return Trunk(built, tokenizer, name=name, for_training=True)
    except UnsupportedModel:
        raise
    except Exception as error:  # each family checks in its own way, or not until it computes
        raise UsageError(f"[model] {model_type}: these sizes do not go together ({one_line(error)})") from error


def check_model(model: ModelConfig, place: Place) -> None:
    """Raise UsageError, with the line, for an unknown preset, model type or key."""

    def refuse(key: str, problem: str) -> NoReturn:
        raise UsageError(f"{place.of('model', key)}: [model] {problem}")

    if model.preset and model.preset not in PRESETS:
        refuse("preset", f"preset is {model.preset!r}; allowed: {', '.join(PRESETS)}")
    values = _values(model)
    if (model_type := values.get("model_type")) is None:
        refuse("", f"preset or model_type missing; presets: {', '.join(PRESETS)}; model_type: as transformers knows it")
    if model_type not in CONFIG_MAPPING_NAMES:
        refuse("model_type", f"model_type is {model_type!r}{_near(str(model_type), CONFIG_MAPPING_NAMES)}")
    config = AutoConfig.for_model(model_type)
    known = {*config.to_dict(), *config.attribute_map, "rope_theta", "head_dim"}
    for key, value in values.items():
        if key not in known:
            refuse(key, f"unknown key {key!r} for {model_type}{_near(key, known)}")
        if key.startswith(("num_", "hidden_size", "intermediate_size")) and (type(value) is not int or value < 1):
            refuse(key, f"{key} is {value!r}; allowed: a whole number, 1 or more")


def _values(model: ModelConfig) -> dict[str, Any]:
    """The preset with the recipe's own keys over it."""
    return {**PRESETS.get(model.preset, {}), **model.config}


def _near(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else "; see the family's config in transformers"


def _special_tokens(tokenizer: Any) -> dict[str, Any]:
    return {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "pad")}
