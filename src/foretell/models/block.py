"""What heads are made of: a small decoder of the trunk's own class, and norms of its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn
from torch.func import functional_call

from foretell.errors import UnsupportedModel
from foretell.models.block_layer import block_layer_of
from foretell.models.copies import copy_without_hooks
from foretell.models.decoder import DecoderRunner, final_norm_name
from foretell.models.quantised import make_dense
from foretell.models.support import POSITION_WISE_KINDS

if TYPE_CHECKING:
    from foretell.models.trunk import Trunk


def small_decoder(
    trunk: Trunk, norm: nn.Module, block_layer: int = -1, then_layer: int = -1, mlp_layer: int = -1
) -> DecoderRunner:
    """Runner of a decoder with one layer, or two, ``runner.decoder.layers``, and ``norm`` as its final norm.

    A layer is a trainable copy of the trunk's ``block_layer``, by default its last one of the right type
    (``Trunk.block_config``), so attention kind, masks and rotary embedding are the family's own; a second one of its
    ``then_layer``. The first has the MLP of ``mlp_layer``, if one is given. Raises UnsupportedModel where the second
    has attention (heads keep the keys of one layer), or a layer has no MLP to exchange.
    """
    config, indices = trunk.block_config(block_layer, then_layer, mlp_layer)
    first, *second = indices
    views = [block_layer_of(trunk.decoder, first, mlp_layer), *(block_layer_of(trunk.decoder, i) for i in second)]
    with torch.device("meta"):
        body = type(trunk.decoder)(config)
    layers = [make_dense(copy_without_hooks(layer), trunk.dtype) for layer in views]
    body.layers = nn.ModuleList([layer.to(trunk.states_device).requires_grad_(True) for layer in layers])
    setattr(body, final_norm_name(body), norm)
    if hasattr(body, "rotary_emb"):
        body.rotary_emb = copy_without_hooks(trunk.decoder.rotary_emb).to(trunk.states_device)
    body.set_input_embeddings(None)
    body.config._attn_implementation = trunk.decoder.config._attn_implementation
    for index, layer in enumerate(body.layers):
        part: Any
        for part in layer.modules():
            if hasattr(part, "gradient_checkpointing"):
                part.gradient_checkpointing = False
            if hasattr(part, "layer_idx"):
                part.layer_idx = index
            if hasattr(part, "config"):
                part.config = body.config
    runner = DecoderRunner(body)
    if then_layer >= 0 and runner.kinds[1] not in POSITION_WISE_KINDS:
        raise UnsupportedModel(
            f"heads: then_layer {then_layer} is of kind {runner.kinds[1]}; a second layer looks at one position alone: "
            f"{' or '.join(POSITION_WISE_KINDS)}"
        )
    return runner


def heads_norm(trunk: Trunk, kind: Literal["own", "trunk", "none"]) -> nn.Module:
    """A final norm for heads: a trainable copy of the trunk's, the trunk's itself, or none."""
    if kind == "none":
        return nn.Identity()
    return copy_without_hooks(trunk.final_norm).requires_grad_(True) if kind == "own" else TrunkNorm(trunk)


def unit_norm(trunk: Trunk) -> nn.Module:
    """A trainable norm of the trunk's kind with unit gain, whether its weight is the gain or an offset from 1."""
    norm = copy_without_hooks(trunk.final_norm).requires_grad_(True)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.zero_()
        weight = next(norm.parameters())
        if norm(torch.ones(1, 1, len(weight), device=weight.device, dtype=weight.dtype)).abs().max() < 1e-6:
            norm.weight.fill_(1.0)  # type: ignore[operator]
    return norm


class TrunkNorm(nn.Module):
    """The trunk's final norm, borrowed: it has the trunk's present values and is never trained through the heads."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self._borrowed = (trunk, copy_without_hooks(trunk.final_norm))  # a tuple: no tensor of it is the heads' own

    @property
    def borrowed(self) -> nn.Module:
        """A norm of the trunk's kind; its values may be older ones."""
        return self._borrowed[1]

    def forward(self, states_BTD: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, T, D)."""
        trunk, norm = self._borrowed
        values = {
            name: value.detach().to(torch.promote_types(value.dtype, states_BTD.dtype))
            for name, value in trunk.final_norm.named_parameters()
        }
        return functional_call(norm, values, (states_BTD,))
