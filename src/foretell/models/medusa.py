"""Medusa heads (Cai et al., arXiv 2401.10774): residual blocks on the trunk's state, an own output matrix a depth.

    x <- x + SiLU(W x + b)  once a block,  x = the trunk's state at i,  logits = Out_k x,  predicts t_(i+k+1)

W and b start at zero and Out_k as the trunk's output head, so that a fresh head says what the trunk says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from foretell.config import HeadsConfig
from foretell.models.decoder import Masks, States
from foretell.models.heads import Heads

if TYPE_CHECKING:
    from foretell.models.trunk import Trunk


class ResBlock(nn.Module):
    """x + SiLU(W x + b), at the start the identity."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        size = trunk.hidden_size
        self.linear = nn.Linear(size, size, dtype=trunk.dtype, device=trunk.states_device)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, states_BTD: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, T, D)."""
        return states_BTD + F.silu(self.linear(states_BTD))


class MedusaModule(nn.Module):
    """One depth's module: residual blocks, each with weights of its own, and the output matrix."""

    def __init__(self, trunk: Trunk, num_blocks: int, output: nn.Linear) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ResBlock(trunk) for _ in range(num_blocks))
        self.output = output

    def forward(self, states_BTD: torch.Tensor) -> torch.Tensor:
        """Trunk states -> what ``output`` projects."""
        for block in self.blocks:
            states_BTD = block(states_BTD)
        return states_BTD


class MedusaHeads(Heads):
    """One module a depth; every position is looked at alone."""

    reads_tokens = False

    def __init__(self, trunk: Trunk, config: HeadsConfig, draft_ids_V: torch.Tensor | None = None) -> None:
        super().__init__(trunk, config, draft_ids_V)
        self.modules_by_depth = nn.ModuleList(
            MedusaModule(trunk, config.num_res_blocks, self.new_output()) for _ in range(config.num_modules)
        )

    @property
    def attends(self) -> bool:
        """See Heads."""
        return False

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
        """See Heads; neither embeddings nor documents are read."""
        state_BTD = self.trunk_side(trunk_states)
        return [self.run(module, state_BTD) for module in self.modules_by_depth[:num_depths]]

    def step(
        self,
        depth: int,
        states_BND: torch.Tensor,
        embeddings_BND: torch.Tensor | None,
        positions_BN: torch.Tensor,
        allowed: Masks,
        cache: Any,
    ) -> States:
        """See Heads; only the states are read."""
        states_BND = self.modules_by_depth[depth - 1](states_BND)
        return States(states_BND, states_BND)
