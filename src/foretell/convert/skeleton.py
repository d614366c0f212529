"""A trunk without values: its class and layers, for what names and kinds depend on. Nothing is read or allocated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from foretell.checkpoints.files import one_line
from foretell.checkpoints.layer_names import stored_name
from foretell.checkpoints.quiet import quiet_transformers
from foretell.checkpoints.stored import StoredModel
from foretell.config import HeadsConfig
from foretell.errors import UnsupportedModel
from foretell.models import step3p5 as step3p5  # transformers is told of its class
from foretell.models.decoder import final_norm_name
from foretell.models.support import block_index


def skeleton(folder: Path) -> Any:
    """The causal LM of ``folder`` on the meta device; no code from the checkpoint is run. Raises UnsupportedModel."""
    return _made(
        lambda: AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True), str(folder)
    )


def skeleton_of(config: Any, name: str) -> Any:
    """The same of a config; ``name`` is what an error calls it."""
    return _made(lambda: config, name)


def _made(config: Callable[[], Any], name: str) -> Any:
    try:
        with quiet_transformers(), torch.device("meta"):
            return AutoModelForCausalLM.from_config(config(), trust_remote_code=False)
    except Exception as error:  # as in checkpoints/load: many kinds
        raise UnsupportedModel(f"{name}: not a causal LM that transformers knows ({one_line(error)})") from error


def block_layers(model: Any, heads: HeadsConfig) -> tuple[int, int]:
    """The layer that heads' blocks are built as, and the one whose MLP they have; see block_index."""
    config = model.get_decoder().config
    index = block_index(config, heads.block_layer, "the trunk")
    return index, index if heads.mlp_layer == -1 else block_index(config, heads.mlp_layer, "the trunk", "mlp_layer")


def final_norm(model: Any) -> Any:
    """The trunk's final norm."""
    decoder = model.get_decoder()
    return getattr(decoder, final_norm_name(decoder))


def stored_weight(source: StoredModel, model: Any, module: Any) -> str:
    """The name under which ``source`` holds the weight of a module of ``model``. Raises CheckpointError."""
    return source.find(stored_name(model, f"{module_name(model, module)}.weight"))


def module_name(model: Any, wanted: Any) -> str:
    """The name of a module within ``model``."""
    return next(name for name, module in model.named_modules() if module is wanted)
