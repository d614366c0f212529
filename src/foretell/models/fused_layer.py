"""Decoder layers that run through kernels/layer in decoding: those that turn out to compute the same.

Whatever its family calls it, a layer qualifies by its parts (an RMSNorm, queries, keys and values of packed linear
layers, rotary positions, a gated MLP) and by its results: it is run once both ways. All others stay as they are.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from foretell.kernels.layer import LayerKernel
from foretell.kernels.linear import MAX_ROWS
from foretell.models.attention import grouped_attention
from foretell.models.packed import KernelLinear

_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.05}
_PARTS = {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"}


class FusedLayer:
    """Mixed into the class of a layer by ``fuse_layers``: its ``forward`` for few rows is two kernels and attention."""

    _kernel: LayerKernel

    def forward(self, hidden_states: torch.Tensor, **inputs: Any) -> torch.Tensor:
        """As the layer's own, for one packed row of tokens with a mask; all else goes there."""
        mask, positions = inputs.get("attention_mask"), inputs.get("position_embeddings")
        fits = len(hidden_states) == 1 and hidden_states.shape[1] <= MAX_ROWS and mask is not None
        if not fits or positions is None or (torch.is_grad_enabled() and hidden_states.requires_grad):
            own: torch.Tensor = super().forward(hidden_states, **inputs)  # type: ignore[misc]
            return own
        cache = inputs.get("cache", inputs.get("past_key_values"))
        attention: Any = self.self_attn  # type: ignore[attr-defined]
        dtype = hidden_states.dtype
        x_PD = hidden_states[0].float().contiguous()
        cos_PR, sin_PR = (part[0].float().contiguous() for part in positions)
        query, key, value = (
            part.to(dtype).transpose(0, 1).unsqueeze(0) for part in self._kernel.before(x_PD, cos_PR, sin_PR)
        )
        if cache is not None:
            key, value = cache.update(key, value, attention.layer_idx)
        mixed, _ = grouped_attention(attention, query, key, value, mask, scaling=attention.scaling)
        out_PD = self._kernel.after(x_PD, mixed.reshape(len(x_PD), -1).float().contiguous())
        return out_PD.to(dtype).unsqueeze(0)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy is the layer that it was: its linear layers are ordinary ones again (see PackedLinear)."""
        fields = {name: value for name, value in self.__dict__.items() if name != "_kernel"}
        fresh: Any = object.__new__(type(self).__mro__[2])
        memo[id(self)] = fresh
        fresh.__dict__.update({name: copy.deepcopy(value, memo) for name, value in fields.items()})
        return fresh


def fuse_layers(module: nn.Module) -> int:
    """Let the layers below ``module`` that can run through the kernels do so; returns how many."""
    count = 0
    for layer in list(module.modules()):
        names = {name for name, _ in layer.named_children()}
        if names == _PARTS and not isinstance(layer, FusedLayer) and (kernel := _kernel(layer)) is not None:
            own = type(layer)
            layer.__class__ = _fused(own)  # hooks, names and weights stay
            layer._kernel = kernel  # type: ignore[assignment]
            if _computes_the_same(layer, own):
                count += 1
            else:
                unfuse(layer)
    return count


def unfuse(layer: nn.Module) -> None:
    """Let a layer run as its class does."""
    layer.__class__ = type(layer).__mro__[2]
    del layer._kernel


def unfuse_layers(module: nn.Module) -> None:
    """Undo ``fuse_layers``."""
    for layer in module.modules():
        if isinstance(layer, FusedLayer):
            unfuse(layer)


_FUSED: dict[type[nn.Module], Any] = {}


def _fused(own: type[nn.Module]) -> Any:
    if own not in _FUSED:
        _FUSED[own] = type(f"Fused{own.__name__}", (FusedLayer, own), {"__module__": __name__})
    return _FUSED[own]


def _kernel(layer: Any) -> LayerKernel | None:
    attention, mlp = layer.self_attn, layer.mlp
    linears = [getattr(attention, f"{name}_proj", None) for name in "qkvo"]
    linears += [getattr(mlp, f"{name}_proj", None) for name in ("gate", "up", "down")]
    norms = [_norm(layer.input_layernorm), _norm(layer.post_attention_layernorm)]
    known = {"q_proj", "k_proj", "v_proj", "o_proj"}
    if not all(isinstance(linear, KernelLinear) for linear in linears) or None in norms:
        return None
    if {name for name, _ in attention.named_children()} != known or not hasattr(attention, "scaling"):
        return None
    return LayerKernel([linear.matrix for linear in linears], norms, attention.head_dim)  # type: ignore[union-attr, arg-type]


def _norm(norm: Any) -> tuple[torch.Tensor, float] | None:
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    return None if eps is None or [name for name, _ in norm.named_parameters()] != ["weight"] else (norm.weight, eps)


@torch.no_grad()
def _computes_the_same(layer: Any, own: type[nn.Module]) -> bool:
    """Both ways on a few states of several sizes: what a family adds (other gains, soft caps, scales) shows here."""
    weight = layer.self_attn.q_proj.weight
    generator = torch.Generator().manual_seed(0)
    num_tokens, head_dim = 5, layer.self_attn.head_dim
    x = torch.randn(1, num_tokens, weight.shape[1], generator=generator)
    x = (x * torch.logspace(-1, 1, num_tokens).view(1, -1, 1)).to(weight.dtype)
    angles = torch.rand(1, num_tokens, head_dim // 2, generator=generator).repeat(1, 1, 2) * 6
    inputs = {
        "attention_mask": torch.ones(1, 1, num_tokens, num_tokens, dtype=torch.bool).tril(),
        "position_ids": torch.arange(num_tokens).unsqueeze(0),
        "position_embeddings": (angles.cos().to(weight.dtype), angles.sin().to(weight.dtype)),
    }
    try:
        theirs = own.forward(layer, x, **inputs)
        ours = layer.forward(x, **inputs)
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
        return False
    if not isinstance(theirs, torch.Tensor) or theirs.shape != ours.shape:
        return False
    far = (theirs.float() - ours.float()).abs().amax(-1) / theirs.float().abs().amax(-1).clamp(min=1e-6)
    return bool((far < _TOLERANCE[weight.dtype]).all())
