"""Parallel heads (Gloeckle et al., arXiv 2404.19737): each depth reads the trunk's state alone, and no token.

    h^k_i = Norm_k( Block_k(h^0_(<=i)) ),  h^0 = the trunk's state,  predicts t_(i+k+1)

The block is one layer of the trunk's own class, which attends to the states before it, or one linear map. In the paper
the heads stand beside the trunk's last layer: ``hidden_source`` "below".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from foretell.config import HeadsConfig
from foretell.models.block import heads_norm, small_decoder
from foretell.models.decoder import DecoderRunner, Masks, States, causal_mask, document_positions
from foretell.models.heads import Heads
from foretell.models.support import refuse_for_heads

if TYPE_CHECKING:
    from foretell.models.trunk import Trunk


class LayerModule(nn.Module):
    """One depth's module: a decoder layer that starts as the trunk's, and the final norm."""

    def __init__(self, trunk: Trunk, config: HeadsConfig, output: nn.Linear | None) -> None:
        super().__init__()
        self.norm = heads_norm(trunk, config.final_norm)
        run = small_decoder(trunk, self.norm, config.block_layer)
        self.layer = run.decoder.layers[0]  # type: ignore[index]
        self.output = output
        self._run = (run,)  # a tuple: its parameters are already registered above

    @property
    def runner(self) -> DecoderRunner:
        """What runs the layer."""
        return self._run[0]

    def forward(
        self,
        states_BTD: torch.Tensor,
        positions_BT: torch.Tensor,
        allowed: Masks,
        key_positions_BS: torch.Tensor | None = None,
        cache: Any = None,
    ) -> States:
        """Trunk states -> this depth's states before and after its final norm."""
        return self._run[0](states_BTD, positions_BT, allowed, key_positions_BS, cache)


class LinearModule(nn.Module):
    """One depth's module without attention: a linear map that starts as the identity, and the final norm."""

    def __init__(self, trunk: Trunk, config: HeadsConfig, output: nn.Linear | None) -> None:
        super().__init__()
        size = trunk.hidden_size
        self.linear = nn.Linear(size, size, bias=False, dtype=trunk.dtype, device=trunk.states_device)
        nn.init.eye_(self.linear.weight)
        self.norm = heads_norm(trunk, config.final_norm)
        self.output = output

    def forward(self, states_BTD: torch.Tensor, *_: Any, **__: Any) -> States:
        """Trunk states -> this depth's states before and after its final norm."""
        mapped_BTD = self.linear(states_BTD)
        return States(mapped_BTD, self.norm(mapped_BTD))


class ParallelHeads(Heads):
    """One module a depth, each with its own output matrix where ``config.own_output`` says so."""

    reads_tokens = False

    def __init__(self, trunk: Trunk, config: HeadsConfig, draft_ids_V: torch.Tensor | None = None) -> None:
        super().__init__(trunk, config, draft_ids_V)
        if self.attends:
            refuse_for_heads(trunk)
        kind = LayerModule if self.attends else LinearModule
        self.modules_by_depth = nn.ModuleList(
            kind(trunk, config, self.new_output() if config.own_output else None) for _ in range(config.num_modules)
        )

    @property
    def attends(self) -> bool:
        """See Heads."""
        return self.config.block == "layer"

    @property
    def layer_kinds(self) -> list[str]:
        """See Heads."""
        first = self.modules_by_depth[0]
        return first.runner.kinds[:1] if isinstance(first, LayerModule) else []

    @property
    def layer_window(self) -> int | None:
        """See Heads."""
        first = self.modules_by_depth[0]
        return first.runner.window if isinstance(first, LayerModule) else None

    def output_at(self, depth: int) -> nn.Module | None:
        """See Heads."""
        return self.modules_by_depth[depth - 1].output  # type: ignore[return-value]

    def training_states(
        self,
        trunk_states: States,
        embeddings_BTD: torch.Tensor,
        doc_ids_BT: torch.Tensor,
        num_depths: int | None = None,
    ) -> list[torch.Tensor]:
        """See Heads; the embeddings are not read."""
        state_BTD = self.trunk_side(trunk_states)
        where: tuple[torch.Tensor, ...] = ()
        if self.attends:
            positions_BT = document_positions(doc_ids_BT)
            where = (positions_BT, causal_mask(doc_ids_BT), positions_BT)
        return [self.run(module, state_BTD, *where).post_BTD for module in self.modules_by_depth[:num_depths]]

    def step(
        self,
        depth: int,
        states_BND: torch.Tensor,
        embeddings_BND: torch.Tensor | None,
        positions_BN: torch.Tensor,
        allowed: Masks,
        cache: Any,
    ) -> States:
        """See Heads; the embeddings are not read."""
        return self.modules_by_depth[depth - 1](states_BND, positions_BN, allowed, cache=cache)
