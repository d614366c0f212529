"""The layer that a block of heads is built as, as a view of the trunk's: no tensor is copied."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from foretell.errors import UnsupportedModel

_MLP = "mlp"
"""What the families with layers of several kinds call a layer's MLP, dense or with experts."""


def block_layer_of(decoder: Any, index: int, mlp_layer: int = -1) -> nn.Module:
    """The decoder's layer ``index``, with the MLP of ``mlp_layer`` in place of its own where one is given.

    Of a layer with two attentions the first half. Raises UnsupportedModel where a layer has no MLP under a known name.
    """
    layer = _single(decoder.layers[index])
    return layer if mlp_layer in (-1, index) else _with_mlp(layer, _single(decoder.layers[mlp_layer]))


class FirstHalf(nn.Module):
    """The first attention and the first dense MLP of a double layer (LongCat-Flash), without the experts around the
    second: the layer that its heads have, and heads keep the keys of one attention.
    """

    def __init__(self, double: Any) -> None:
        super().__init__()
        self.self_attn = double.self_attn[0]
        self.mlp = double.mlps[0]
        self.input_layernorm = double.input_layernorm[0]
        self.post_attention_layernorm = double.post_attention_layernorm[0]

    def forward(self, hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """(B, T, D) -> (B, T, D): attention, then the MLP, each on the norm of the sum so far and added to it."""
        attended, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)
        hidden_states = hidden_states + attended
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


def _single(layer: nn.Module) -> nn.Module:
    return FirstHalf(layer) if isinstance(getattr(layer, "self_attn", None), nn.ModuleList) else layer


def _with_mlp(layer: nn.Module, other: nn.Module) -> nn.Module:
    for one in (layer, other):
        if not isinstance(getattr(one, _MLP, None), nn.Module):
            raise UnsupportedModel(
                f"heads: mlp_layer exchanges an MLP, and {type(one).__name__} has none under the name {_MLP!r}; "
                "leave it out"
            )
    view = copy.copy(layer)  # a module of its own, whose parts are still the trunk's
    view._modules = {**layer._modules, _MLP: other._modules[_MLP]}
    return view
