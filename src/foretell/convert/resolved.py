"""resolved: a config with what it leaves to its class's defaults, for another class has others."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig

from foretell.checkpoints.stored import StoredModel

_DEFAULTS = ("num_key_value_heads", "rms_norm_eps", "hidden_act", "max_position_embeddings", "tie_word_embeddings")


def resolved(source: StoredModel) -> dict[str, Any]:
    """The config of ``source``, and from its class's defaults what a layer and its positions depend on."""
    known = AutoConfig.from_pretrained(source.folder, trust_remote_code=False, local_files_only=True).to_dict()
    has_rope = {"rope_theta", "rope_scaling", "rope_parameters"} & source.config.keys()
    keys = _DEFAULTS if has_rope else (*_DEFAULTS, "rope_parameters")
    return {key: known[key] for key in keys if known.get(key) is not None} | source.config
