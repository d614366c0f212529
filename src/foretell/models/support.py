"""What a model family must offer. Refusals name the family, so that no reader has to guess from a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from foretell.errors import CheckpointError, UnsupportedModel

if TYPE_CHECKING:
    from foretell.models.trunk import Trunk

ATTENTION_KINDS = ("full_attention", "sliding_attention")
"""Layer types that DecoderRunner has a mask for."""

MASKLESS_KINDS = ("linear_attention", "conv", "hybrid", "moe", "mlp")
"""Layer types that take no mask: they read in order, or look at one position; a hybrid one is given both masks."""


POSITION_WISE_KINDS = ("moe", "mlp")
"""Layer types that look at one position alone."""

_NO_POSITIONS = ("nemotron_h",)
"""Families whose attention knows no positions, and so has no rotary embedding."""


def refuse_layer_types(family: str, config: Any) -> None:
    """Raise UnsupportedModel where a layer looks at other keys than a causal or sliding mask allows."""
    unknown = sorted(set(getattr(config, "layer_types", None) or ()) - {*ATTENTION_KINDS, *MASKLESS_KINDS})
    if unknown:
        raise UnsupportedModel(
            f"{family}: layers of type {', '.join(unknown)} are not supported; "
            f"use a model whose layers are all of type {' or '.join(ATTENTION_KINDS)}"
        )


_DOUBLE_LAYERS = ("longcat_flash",)
"""Families whose decoder layers hold two layers' attention each, and whose config counts those."""


def num_decoder_layers(config: Any) -> int:
    """Entries of the decoder's list of layers, by its config; what caches count is ``num_hidden_layers``."""
    return int(config.num_layers if config.model_type in _DOUBLE_LAYERS else config.num_hidden_layers)


def set_num_decoder_layers(config: Any, count: int) -> None:
    """Let a decoder built from ``config`` have ``count`` layers."""
    setattr(config, "num_layers" if config.model_type in _DOUBLE_LAYERS else "num_hidden_layers", count)


def block_index(config: Any, block_layer: int, name: str, setting: str = "block_layer") -> int:
    """The layer that heads' blocks are built as; -1: the last full-attention one, or the last where none is.

    ``config``: the decoder's. Raises CheckpointError where there is no such layer, with the trunk's ``name`` and the
    ``setting`` that asked for it.
    """
    count = num_decoder_layers(config)
    if not -1 <= block_layer < count:
        raise CheckpointError(f"heads: {setting} is {block_layer}; {name} has layers 0 to {count - 1}")
    if block_layer >= 0:
        return block_layer
    types = list(getattr(config, "layer_types", None) or [])
    full = [i for i, kind in enumerate(types) if kind == "full_attention"]
    return full[-1] if full else count - 1


def refuse_for_heads(trunk: Trunk) -> None:
    """Raise UnsupportedModel where heads with attention cannot be built from the trunk's own parts."""
    lacks = []
    if not isinstance(getattr(trunk.decoder, "layers", None), nn.ModuleList):
        lacks.append("a list of decoder layers")
    has_positions = trunk.decoder.config.model_type not in _NO_POSITIONS
    if has_positions and not isinstance(getattr(trunk.decoder, "rotary_emb", None), nn.Module):
        lacks.append("a rotary embedding")
    if not isinstance(getattr(trunk.final_norm, "weight", None), nn.Parameter):
        lacks.append("a final norm with a gain")
    kinds = set(getattr(trunk.decoder.config, "layer_types", None) or ATTENTION_KINDS)
    if not kinds & set(ATTENTION_KINDS):
        lacks.append("a layer of attention alone")
    if lacks:
        raise UnsupportedModel(
            f"{type(trunk.model).__name__}: these heads copy {', '.join(lacks)} from the trunk, and this family has "
            "none under a known name; use medusa heads, which copy nothing but the output head"
        )


def decoder_layers(trunk: Trunk, what_for: str) -> nn.ModuleList:
    """The trunk's layers; raises UnsupportedModel, saying ``what_for``, where they have no known name."""
    layers = getattr(trunk.decoder, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise UnsupportedModel(
            f"{type(trunk.model).__name__}: {what_for} goes layer by layer, and this family has no list of layers "
            "under a known name; leave it out"
        )
    return layers
