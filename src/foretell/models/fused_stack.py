"""FusedStack: a decoder's layers as one kernel call, where that turns out to compute the same.

Whatever its family calls it, a decoder qualifies by its parts (fused_layers) and by its results: every layer is run
both ways when the model is loaded. All others stay as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from foretell.kernels.linear import MAX_ROWS
from foretell.kernels.passes import KernelPass, Span
from foretell.kernels.stack import StackKernel
from foretell.models.fused_layers import described_layers, norm_of
from foretell.models.fused_trial import computes_the_same

if TYPE_CHECKING:
    from foretell.models.decoder import DecoderRunner


_MAX_ROUNDED = 256
"""Most tokens of a pass through rounded weights; with more, attention is dearer here than elsewhere."""


class FusedStack:
    """Runs the layers of ``run``'s decoder for one packed row of few tokens and a cache in blocks."""

    def __init__(self, run: DecoderRunner, final: nn.Module, kernel: StackKernel, lock: threading.Lock) -> None:
        self.kernel = kernel
        is_rounded = all(matrix.is_rounded for layer in kernel.layers for matrix in layer.matrices)
        self._max_tokens = _MAX_ROUNDED if is_rounded else MAX_ROWS
        self._rotary: Any = run.decoder.rotary_emb
        self._final = final
        self._lock = lock
        self._run = run
        self._modules = [module for layer in run.decoder.layers for module in layer.modules()] + [final]  # type: ignore[union-attr]
        self._children = [(m._modules, name, child) for m in self._modules for name, child in m._modules.items()]
        small = [p for m in self._modules for p in m._parameters.values() if p is not None and p.dim() == 1]
        self._versions = [(parameter, parameter._version) for parameter in small]  # the kernel may have copies

    @classmethod
    def of(cls, run: DecoderRunner, final: nn.Module, lock: threading.Lock) -> FusedStack | None:
        """None where the kernels do not compute what ``run`` does. ``final``: its decoder's final norm.

        ``lock``: held while the rotary embedding runs, which may change itself for long texts.
        """
        layers = described_layers(run)
        if layers is None or any(p.is_inference() for p in run.decoder.parameters()):
            return None
        if not computes_the_same(run, final, layers):
            return None
        return cls(run, final, StackKernel(layers, norm_of(final)), lock)

    def is_current(self) -> bool:
        """False where a layer was exchanged, unpacked to be trained, changed, or has somebody listening to it."""
        return (
            all(children.get(name) is child for children, name, child in self._children)
            and all(parameter._version == version for parameter, version in self._versions)
            and not any(self._listens(m) for m in self._modules if m._forward_hooks or m._forward_pre_hooks)
        )

    def fits(self, embeddings_BTD: torch.Tensor, allowed: Any, cache: Any) -> bool:
        """True where this pass can run here; all else is for the decoder itself."""
        return (
            len(embeddings_BTD) == 1
            and embeddings_BTD.shape[1] <= self._max_tokens
            and hasattr(cache, "spans")
            and isinstance(allowed, Mapping)
            and embeddings_BTD.device.type == "cpu"
            and not (torch.is_grad_enabled() and embeddings_BTD.requires_grad)
            and self.is_current()
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
        given = self.kernel_pass(embeddings_BTD, positions_BT, allowed, cache)
        found = self.kernel.run(embeddings_BTD[0], given, with_below)
        pre, post, below = (None if each is None else each.to(embeddings_BTD.dtype).unsqueeze(0) for each in found)
        assert pre is not None
        return pre, self._final(pre) if post is None else post, below

    def kernel_pass(
        self, like: torch.Tensor, positions_BT: torch.Tensor, allowed: Mapping[str, torch.Tensor], cache: Any
    ) -> KernelPass:
        """The pass that ``cache`` was told of, for states like those of ``like``."""
        layer = self.kernel.layers[0]
        with self._lock:
            cos, sin = self._rotary(like, positions_BT)
        spans = {kind: Span(span.write_P, span.read_blocks, allowed[kind]) for kind, span in cache.spans.items()}
        counts = [positions_BT.shape[1]] if cache.layout is None else cache.layout.counts
        return KernelPass(counts, (cos[0], sin[0]), spans, *cache.buffers(layer.num_kv_heads, layer.head_size, like))

    def _listens(self, module: nn.Module) -> bool:
        hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
        return any(getattr(hook, "__self__", None) is not self._run for hook in hooks)
