"""What a user should hear before a run begins, because the run goes on without it."""

from __future__ import annotations

from collections.abc import Iterator

from transformers.integrations import is_tensorboard_available

from foretell.checkpoints.adapter_config import is_adapter, read_adapter_config
from foretell.checkpoints.native import claimed_heads
from foretell.checkpoints.native_heads import why_not_native
from foretell.models.recurrent_support import can_be_decoded
from foretell.models.trunk import Trunk
from foretell.training.recipe import NATIVE, Recipe


def notes(recipe: Recipe, trunk: Trunk) -> Iterator[str]:
    """One line each."""
    joint = recipe.train.trunk == "joint"
    if joint and (claim := claimed_heads(trunk.config.to_dict())).num_layers:
        if recipe.init_from != NATIVE:
            why = why_not_native(trunk)
            way = f'{claim}; to train them too, give init_from = "native"' if why is None else why
            yield f"{way}. They stay behind: keep the original"
        yield f"the config of {recipe.output} will claim no native MTP layers: its heads are in mtp.safetensors"
    if recipe.trunk and is_adapter(recipe.trunk) and recipe.init_from != recipe.trunk:
        yield f'the heads in {recipe.trunk} are not used; to train them further, give init_from = "{recipe.trunk}"'
    if (
        recipe.init_from not in ("", NATIVE)
        and read_adapter_config(recipe.init_from).trunk.fingerprint != trunk.fingerprint()
    ):
        yield f"the heads in {recipe.init_from} were trained against another trunk; they are trained for this one now"
    if joint and trunk.is_recurrent and not can_be_decoded(trunk.model):
        yield "this family trains, but cannot be decoded here yet: foretell load and generate will refuse the result"
    if joint and any(
        getattr(trunk.config, name, None) for name in ("num_local_experts", "num_experts", "n_routed_experts")
    ):
        yield "experts are routed without a balancing loss; watch that they do not fall out of use"
    if not is_tensorboard_available():
        yield "TensorBoard is not installed (pip install tensorboard): figures go to metrics.jsonl alone"
