"""Whether a layout says what an adapter's heads compute."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from foretell.checkpoints.adapter_config import AdapterInfo
from foretell.checkpoints.families import Family
from foretell.checkpoints.layer_settings import Layers
from foretell.config import HeadsConfig
from foretell.errors import CheckpointError
from foretell.models.block_layer import block_layer_of
from foretell.models.support import block_index


def concat_of(family: Family) -> str:
    """Which half comes first in this family."""
    return str(family.conventions.get("concat", HeadsConfig().concat))


def check_conventions(info: AdapterInfo, family: Family, num_modules: int, folds: bool) -> list[str]:
    """Raise CheckpointError where these heads compute what the layout cannot say; notes for what it says otherwise.

    ``folds``: the trunk's final norm will have gain 1, which makes the state before it do for the one after it.
    """
    heads, wanted = info.heads, HeadsConfig(**{"num_depths": 1} | dict(family.conventions))
    if heads.kind != "sequential":
        raise CheckpointError(f"{info.folder}: heads of kind {heads.kind}; {family.name} holds sequential heads")
    if heads.own_output:
        more = ", of which every module gets a copy" if wanted.own_output else ""
        raise CheckpointError(
            f"{info.folder}: heads with output matrices of their own; export to {family.name} takes heads that share "
            f"the trunk's output head{more}; train heads with own_output = false, or serve the checkpoint that they "
            "came with"
        )
    if ("norm" in family.parts) != (heads.final_norm != "none"):
        has = {"none": "no final norm"}.get(heads.final_norm, "a final norm")
        raise CheckpointError(f"{info.folder}: these heads have {has}, which the {family.name} layout cannot say")
    if heads.then_layer >= 0:
        raise CheckpointError(
            f"{info.folder}: a module of these heads has two layers, and the layouts that can be written have one; "
            "serve the checkpoint that they came with"
        )
    if family.max_modules and num_modules > family.max_modules:
        raise CheckpointError(
            f"{info.folder}: {num_modules} distinct modules, of which the engines serve {family.max_modules} in the "
            f"{family.name} layout; to export the first alone, give --modules {family.max_modules}"
        )
    if folds and heads.hidden_source != "post":
        raise CheckpointError(
            f"{info.folder}: these heads read the trunk's state before its final norm, and folding that norm is for "
            "those that read the one after it; leave --fold-norm out"
        )
    if heads.hidden_source != wanted.hidden_source and not folds:
        where = {"pre": "before", "post": "after"}
        way = 'train heads with hidden_source = "post"'
        if wanted.hidden_source == "pre":
            way = "export them with --fold-norm, or make others with: foretell convert fold-norm"
        raise CheckpointError(
            f"{info.folder}: these heads read the trunk's state {where[heads.hidden_source]} its final norm, and "
            f"the {family.name} layout means the one {where[wanted.hidden_source]} it; {way} (docs/guides/engines.md)"
        )
    if heads.feedback != wanted.feedback and (num_modules > 1 or heads.num_depths > 1):
        raise CheckpointError(
            f"{info.folder}: these heads hand on their {heads.feedback} state, and the {family.name} layout means the "
            f'{wanted.feedback} one; train heads with feedback = "{wanted.feedback}"'
        )
    return _notes(info, num_modules, wanted)


def check_layers(info: AdapterInfo, family: Family, decoder: Any, layers: Layers) -> None:
    """Raise CheckpointError where a module has another MLP than the layer that engines build for the layout.

    ``decoder``: the trunk's, without values.
    """
    index, mlp = layers
    own = block_index(decoder.config, family.own_layer, "the trunk")
    joined, plain = (_mlp_shapes(block_layer_of(decoder, index, other)) for other in (mlp, index))
    if joined == _mlp_shapes(block_layer_of(decoder, own)):
        return
    if joined != plain:
        raise CheckpointError(
            f"{info.folder}: these heads have the MLP of layer {mlp} in a block built as layer {index} (mlp_layer), "
            f"whose own is another, and the {family.name} layout cannot say so; train heads without mlp_layer"
        )
    advice = "without block_layer" if family.own_layer == -1 else f"with block_layer = {own}"
    raise CheckpointError(
        f"{info.folder}: these heads have the MLP of layer {index}, and engines build the one of layer {own} for the "
        f"{family.name} layout, which is another; train heads {advice}"
    )


def _mlp_shapes(layer: nn.Module) -> dict[str, torch.Size]:
    """Of the layer's MLP, dense or with experts; what attention a layer has is said by ``layer_types``."""
    return {name: tensor.shape for name, tensor in layer.state_dict().items() if name.startswith("mlp.")}


def _notes(info: AdapterInfo, num_modules: int, wanted: HeadsConfig) -> list[str]:
    heads = info.heads
    notes = []
    if num_modules < heads.num_modules:
        notes.append(f"modules {num_modules + 1} to {heads.num_modules} of the adapter were left behind, as asked")
    if heads.draft_vocab_size:
        notes.append(
            f"the draft vocabulary of {heads.draft_vocab_size:,} tokens was left behind: engines draft from all tokens"
        )
    if heads.zero_first != wanted.zero_first:
        notes.append("engines count the embedding beside a text's first state as zeros; it touches one key alone")
    if heads.max_positions:
        notes.append(f"the heads' own window of {heads.max_positions} tokens was left behind: engines know none")
    return notes
