"""A trunk without values: its class and layers, for what names and kinds depend on. Nothing is read or allocated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from foretell.checkpoints.files import one_line
from foretell.checkpoints.quiet import quiet_transformers
from foretell.errors import CheckpointError, UnsupportedModel
from foretell.models.decoder import final_norm_name


def skeleton(folder: Path) -> Any:
    """The causal LM of ``folder`` on the meta device; no code from the checkpoint is run. Raises UnsupportedModel."""
    try:
        with quiet_transformers(), torch.device("meta"):
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
            return AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as error:  # as in checkpoints/load: many kinds
        raise UnsupportedModel(f"{folder}: not a causal LM that transformers knows ({one_line(error)})") from error


def layer_index(model: Any, block_layer: int) -> int:
    """The layer that heads' blocks are built as; see Trunk.block_config."""
    config = model.get_decoder().config
    if not -1 <= block_layer < config.num_hidden_layers:
        raise CheckpointError(
            f"heads: block_layer is {block_layer}; the trunk has layers 0 to {config.num_hidden_layers - 1}"
        )
    if block_layer >= 0:
        return block_layer
    types = list(getattr(config, "layer_types", None) or [])
    full = [i for i, kind in enumerate(types) if kind == "full_attention"]
    return full[-1] if full else config.num_hidden_layers - 1


def final_norm(model: Any) -> tuple[str, Any]:
    """Name of the final norm's gain, and the module."""
    decoder = model.get_decoder()
    norm = getattr(decoder, final_norm_name(decoder))
    return f"{module_name(model, norm)}.weight", norm


def module_name(model: Any, wanted: Any) -> str:
    """The name of a module within ``model``."""
    return next(name for name, module in model.named_modules() if module is wanted)
