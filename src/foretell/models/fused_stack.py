"""FusedStack: a decoder's layers as one kernel call, where that turns out to compute the same.

Whatever its family calls it, a decoder qualifies by its parts (RMSNorms, queries, keys and values of packed linear
layers, rotary positions, a gated MLP) and by its results: it is run once both ways. All others stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from foretell.kernels.linear import MAX_ROWS
from foretell.kernels.passes import KernelPass, Span
from foretell.kernels.stack import Layer, Norm, StackKernel
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
        self.kernel = kernel
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
        stack = cls(run.decoder, final, StackKernel(known, norm_of(final)))
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
        return self._run(embeddings_BTD, self.kernel_pass(embeddings_BTD, positions_BT, allowed, cache), with_below)

    def kernel_pass(
        self, like: torch.Tensor, positions_BT: torch.Tensor, allowed: Mapping[str, torch.Tensor], cache: Any
    ) -> KernelPass:
        """The pass that ``cache`` was told of, for states like those of ``like``."""
        layer = self.kernel.layers[0]
        cos, sin = self._decoder.rotary_emb(like, positions_BT)
        spans = {kind: Span(span.write_P, span.read_blocks, allowed[kind]) for kind, span in cache.spans.items()}
        counts = [positions_BT.shape[1]] if cache.layout is None else cache.layout.counts
        return KernelPass(counts, (cos[0], sin[0]), spans, *cache.buffers(layer.num_kv_heads, layer.head_size, like))

    def _run(
        self, x_BTD: torch.Tensor, given: KernelPass, with_below: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        found = self.kernel.run(x_BTD[0], given, with_below)
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
            for layer, own in zip(self.kernel.layers, self._decoder.layers, strict=True):
                ours, post = self._alone(layer, x, positions, mask)
                rotary = self._decoder.rotary_emb(x, positions)
                x = own(x, attention_mask=mask.unsqueeze(1), position_ids=positions, position_embeddings=rotary)
                if distance(ours, x) > max(_TOLERANCE[matrix.kind] for matrix in layer.matrices):
                    return False
            right = self._final(x)
            whole = run(start, positions, dict.fromkeys(run.kinds, mask)).post_BTD
            return distance(whole, right) < 1e-6 and distance(post, right) <= 2 * distance(ours, x) + 1e-4
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
        cos, sin = self._decoder.rotary_emb(x_BTD, positions_BT)
        alone = FusedStack(self._decoder, self._final, StackKernel([layer], self.kernel.final))
        return alone._run(x_BTD, KernelPass([num_tokens], (cos[0], sin[0]), {layer.kind: span}, keys, values))[:2]


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
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
    norms: list[Norm | None] = [norm_of(layer.input_layernorm), norm_of(layer.post_attention_layernorm)]
    norms += [norm_of(others.pop(name, None)) for name in ("q_norm", "k_norm")]
    if others or None in norms[:2]:
        return None
    matrices = [linear.matrix for linear in linears]  # type: ignore[union-attr]
    if matrices[1].num_out != matrices[2].num_out:
        return None
    return Layer(matrices, norms, float(attention.scaling), int(attention.head_dim), kind)


def norm_of(norm: Any) -> Norm | None:
    """An RMSNorm for the kernels, by its looks; None for what looks otherwise."""
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    if eps is None or [name for name, _ in norm.named_parameters()] != ["weight"]:
        return None
    return Norm(norm.weight, float(eps))
