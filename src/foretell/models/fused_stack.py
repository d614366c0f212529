"""FusedStack: a decoder's layers as one kernel call, where that turns out to compute the same.

Whatever its family calls it, a decoder qualifies by its parts (RMSNorms, queries, keys and values of packed linear
layers, rotary positions, a gated MLP) and by its results: it is run once both ways. All others stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from foretell.kernels.linear import MAX_ROWS
from foretell.kernels.stack import Layer, Norm, Span, StackKernel
from foretell.models.packed import KernelLinear

if TYPE_CHECKING:
    from foretell.models.decoder import DecoderRunner

_PARTS = {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"}
_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.05, "int8": 0.02, "int4": 0.02}
_BLOCK_SIZE = 16


class FusedStack:
    """Runs ``layers`` of ``decoder`` with their ``kinds``, for one packed row of few tokens and a cache in blocks."""

    def __init__(self, decoder: Any, final: nn.Module, kernel: StackKernel) -> None:
        self._decoder = decoder
        self._final = final
        self._kernel = kernel
        self._first = decoder.layers[0].self_attn.q_proj

    @classmethod
    def of(cls, run: DecoderRunner, final: nn.Module) -> FusedStack | None:
        """None where the kernels do not compute what ``run`` does. ``final``: its decoder's final norm."""
        layers = list(getattr(run.decoder, "layers", ()))
        if not layers or len(layers) != len(run.kinds) or not hasattr(run.decoder, "rotary_emb"):
            return None
        described = [_layer(layer, kind) for layer, kind in zip(layers, run.kinds, strict=True)]
        known = [layer for layer in described if layer is not None]
        if len(known) < len(described):
            return None
        stack = cls(run.decoder, final, StackKernel(known, _norm(final)))
        return stack if stack._computes_the_same(run) else None

    def fits(self, embeddings_BTD: torch.Tensor, allowed: Any, cache: Any) -> bool:
        """True where this pass can run here; all else is for the decoder itself."""
        return (
            len(embeddings_BTD) == 1
            and embeddings_BTD.shape[1] <= MAX_ROWS
            and hasattr(cache, "spans")
            and isinstance(allowed, Mapping)
            and embeddings_BTD.device.type == "cpu"
            and not (torch.is_grad_enabled() and embeddings_BTD.requires_grad)
            and self._decoder.layers[0].self_attn.q_proj is self._first  # else it was unpacked, to be trained
        )

    def __call__(
        self,
        embeddings_BTD: torch.Tensor,
        positions_BT: torch.Tensor,
        allowed: Mapping[str, torch.Tensor],
        cache: Any,
        with_below: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """States (1, P, D): of the last layer, behind the final norm, and what entered the last layer where wanted."""
        layer = self._kernel.layers[0]
        keys, values = cache.buffers(layer.num_kv_heads, layer.head_size, embeddings_BTD)
        spans = {
            kind: Span(span.write_P, span.read_blocks, allowed[kind])
            for kind, span in cache.spans.items()
            if kind in self._kernel.kinds
        }
        counts = [embeddings_BTD.shape[1]] if cache.layout is None else cache.layout.counts
        return self._run(embeddings_BTD, positions_BT, counts, spans, keys, values, with_below)

    def _run(
        self,
        x_BTD: torch.Tensor,
        positions_BT: torch.Tensor,
        counts: Sequence[int],
        spans: dict[str, Span],
        keys: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        with_below: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        cos, sin = self._decoder.rotary_emb(x_BTD, positions_BT)
        found = self._kernel.run(x_BTD[0], (cos[0], sin[0]), counts, spans, keys, values, with_below)
        pre, post, below = (None if each is None else each.to(x_BTD.dtype).unsqueeze(0) for each in found)
        assert pre is not None
        return pre, self._final(pre) if post is None else post, below

    @torch.no_grad()
    def _computes_the_same(self, run: DecoderRunner) -> bool:
        """Both ways on a few states of several sizes: what a family adds (other gains, soft caps, scales) shows here.

        Layer by layer, for differences in rounding grow from layer to layer; and the decoder must be no more than its
        layers one after the other.
        """
        weight, num_tokens = self._first.weight, 5
        x = torch.randn(1, num_tokens, weight.shape[1], generator=torch.Generator().manual_seed(0))
        start = x = (x * torch.logspace(-1, 1, num_tokens).view(1, -1, 1)).to(weight.dtype)
        positions = torch.arange(num_tokens).unsqueeze(0)
        mask = torch.ones(1, num_tokens, num_tokens, dtype=torch.bool).tril()
        try:
            for layer, own in zip(self._kernel.layers, self._decoder.layers, strict=True):
                ours, post = self._alone(layer, x, positions, mask)
                rotary = self._decoder.rotary_emb(x, positions)
                x = own(x, attention_mask=mask.unsqueeze(1), position_ids=positions, position_embeddings=rotary)
                if _distance(ours, x) > max(_TOLERANCE[matrix.kind] for matrix in layer.matrices):
                    return False
            right = self._final(x)
            whole = run(start, positions, dict.fromkeys(self._kernel.kinds, mask)).post_BTD
            return _distance(whole, right) < 1e-6 and _distance(post, right) <= 2 * _distance(ours, x) + 1e-4
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError):
            return False

    def _alone(
        self, layer: Layer, x_BTD: torch.Tensor, positions_BT: torch.Tensor, mask_BTT: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the kernels make of one layer, and of the final norm behind it."""
        num_tokens = x_BTD.shape[1]
        mask = F.pad(mask_BTT, (0, _BLOCK_SIZE - num_tokens))
        span = Span(positions_BT[0], torch.zeros(1, 1, dtype=torch.long), mask)
        shape = (layer.num_kv_heads, 1, _BLOCK_SIZE, layer.head_size)
        keys, values = ([torch.zeros(shape, dtype=x_BTD.dtype)] for _ in range(2))
        alone = FusedStack(self._decoder, self._final, StackKernel([layer], _norm(self._final)))
        return alone._run(x_BTD, positions_BT, [num_tokens], {layer.kind: span}, keys, values)[:2]


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference, of the largest number beside it."""
    far = (one.float() - other.float()).abs().amax(-1) / other.float().abs().amax(-1).clamp(min=1e-6)
    return far.max().item()


def _layer(layer: Any, kind: str) -> Layer | None:
    if {name for name, _ in layer.named_children()} != _PARTS:
        return None
    attention, mlp = layer.self_attn, layer.mlp
    linears = [getattr(attention, f"{name}_proj", None) for name in "qkvo"]
    linears += [getattr(mlp, f"{name}_proj", None) for name in ("gate", "up", "down")]
    if not all(isinstance(linear, KernelLinear) for linear in linears) or not hasattr(attention, "scaling"):
        return None
    others = {name: part for name, part in attention.named_children() if part not in linears}
    norms: list[Norm | None] = [_norm(layer.input_layernorm), _norm(layer.post_attention_layernorm)]
    norms += [_norm(others.pop(name, None)) for name in ("q_norm", "k_norm")]
    if others or None in norms[:2]:
        return None
    matrices = [linear.matrix for linear in linears]  # type: ignore[union-attr]
    if matrices[1].num_out != matrices[2].num_out:
        return None
    return Layer(matrices, norms, float(attention.scaling), int(attention.head_dim), kind)


def _norm(norm: Any) -> Norm | None:
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    return None if eps is None or [name for name, _ in norm.named_parameters()] != ["weight"] else (norm.weight, eps)
