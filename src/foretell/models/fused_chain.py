"""FusedChain: what unrolled sequential heads draft greedily, all depths in one kernel call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from foretell.kernels.chain import ChainKernel
from foretell.kernels.linear import MAX_ROWS
from foretell.kernels.stack import Norm
from foretell.models.fused_layers import norm_of
from foretell.models.fused_stack import FusedStack
from foretell.models.fused_trial import distances
from foretell.models.packed import KernelLinear

if TYPE_CHECKING:
    from foretell.models.sequential import SequentialHeads

_SAME = 0.02
"""Two ways of computing a norm differ by less, in every type; other norms by far more."""


class FusedChain:
    """Drafts chains for packed heads whose one module runs through the kernels."""

    def __init__(self, heads: SequentialHeads, stack: FusedStack, kernel: ChainKernel) -> None:
        self._module = heads.module_at(1)
        self._pair = self._module.eh_proj
        self._stack = stack
        self._kernel = kernel

    @classmethod
    @torch.no_grad()
    def of(cls, heads: SequentialHeads) -> FusedChain | None:
        """None where a module does more than the kernel, or there are several."""
        config, trunk, module = heads.config, heads.trunk, heads.module_at(1)
        stack = module.runner.stack
        output = heads.output_at(1) or (trunk.output_head if heads.draft_ids_V is None else heads.draft_rows())
        if stack is None or not config.unrolled or config.zero_first or len(stack.kernel.layers) > 1:
            return None
        norms = [_verified(module.enorm), _verified(module.hnorm), stack.kernel.final]
        embedding = trunk.model.get_input_embeddings()
        if None in norms or not isinstance(output, KernelLinear) or not isinstance(module.eh_proj, KernelLinear):
            return None
        ids = torch.arange(min(4, trunk.vocab_size)).unsqueeze(0)
        weight = getattr(embedding, "weight", None)
        if weight is None or weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
            return None
        if not torch.equal(trunk.embed(ids), weight[ids]) or not _keeps_logits(heads):
            return None
        kernel = ChainKernel(
            stack.kernel.layers[0],
            (norms[0], norms[1], norms[2]),  # type: ignore[arg-type]
            module.eh_proj.matrix,
            output.matrix,
            weight.detach().contiguous(),
            heads.draft_ids_V,
            config.concat == "embedding_first",
            config.feedback == "normed",
        )
        return cls(heads, stack, kernel)

    def fits(self, num_read: int) -> bool:
        """True where a pass that reads so many tokens can run here; not where the module was unpacked to be trained."""
        return 0 < num_read <= MAX_ROWS and self._module.eh_proj is self._pair and self._stack.is_current()

    def draft(
        self,
        token_ids: Sequence[int],
        states_PD: torch.Tensor,
        lengths: Sequence[int],
        positions_BT: torch.Tensor,
        allowed: Mapping[str, torch.Tensor],
        cache: Any,
    ) -> list[list[int]]:
        """``lengths[b]`` tokens for row b; see ChainKernel. ``cache`` was told of the pass."""
        given = self._stack.kernel_pass(states_PD.unsqueeze(0), positions_BT, allowed, cache)
        return self._kernel.draft(token_ids, states_PD, lengths, given)


def _verified(norm: nn.Module) -> Norm | None:
    """The norm for the kernels, if it is an RMSNorm by its results too."""
    found = norm_of(norm)
    if found is None:
        return None
    weight: Any = norm.weight
    x = torch.randn(3, len(weight), generator=torch.Generator().manual_seed(0)).to(weight.dtype)
    scale = x.float().square().mean(-1, keepdim=True).add(found.described.eps).rsqrt()
    return found if distances(weight.float() * x.float() * scale, norm(x)).max() < _SAME else None


def _keeps_logits(heads: SequentialHeads) -> bool:
    logits = torch.randn(1, 8, generator=torch.Generator().manual_seed(0)) * 10
    return torch.equal(heads.trunk.scale_logits(logits), logits)
