"""Sequential heads (DeepSeek-V3, arXiv 2412.19437 eq. 21-23): a chain of one-layer blocks of the trunk's own kind.

    h^k_i = Block_k( eh_proj [ enorm(Emb(t_(i+k))) ; hnorm(h^(k-1)_i) ] ),  h^0 = the trunk's state,  predicts t_(i+k+1)

Two modes: D distinct modules, or one module unrolled K times (FastMTP). The block is a one-layer instance of the
trunk's decoder class, so rotary embedding, attention kind and norms are the family's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from foretell.config import HeadsConfig
from foretell.models.block import heads_norm, small_decoder, unit_norm
from foretell.models.decoder import DecoderRunner, Masks, States, causal_mask, document_positions
from foretell.models.fused_chain import FusedChain
from foretell.models.heads import Heads
from foretell.models.support import refuse_for_heads

if TYPE_CHECKING:
    from foretell.models.trunk import Trunk


class SequentialModule(nn.Module):
    """One depth's module: two norms, the projection of the pair, a decoder layer or two, the final norm.

    ``output``: its own output matrix, or None.
    """

    def __init__(self, trunk: Trunk, config: HeadsConfig, output: nn.Linear | None = None) -> None:
        super().__init__()
        self.config = config
        self.enorm = unit_norm(trunk)
        self.hnorm = unit_norm(trunk)
        size = trunk.hidden_size
        self.eh_proj = nn.Linear(2 * size, size, bias=False, dtype=trunk.dtype, device=trunk.states_device)
        norm = heads_norm(trunk, config.final_norm)
        run = small_decoder(trunk, norm, config.block_layer, config.then_layer, config.mlp_layer)
        layers = list(run.decoder.layers.children())  # type: ignore[union-attr]
        self.layer: nn.Module = layers[0]
        if len(layers) > 1:
            self.then: nn.Module = layers[1]
        self.norm = norm
        self.output = output
        self._run = (run,)  # a tuple: its parameters are already registered above
        self._start_near_identity()

    @property
    def runner(self) -> DecoderRunner:
        """What runs the layer."""
        return self._run[0]

    def forward(
        self,
        states_BTD: torch.Tensor,
        embeddings_BTD: torch.Tensor,
        positions_BT: torch.Tensor,
        allowed: Masks,
        key_positions_BS: torch.Tensor | None = None,
        cache: Any = None,
    ) -> States:
        """Pairs (state, embedding) -> this depth's states before and after its final norm."""
        embeddings_BTD = embeddings_BTD.to(states_BTD.device)
        if self.config.zero_first:
            embeddings_BTD = embeddings_BTD.masked_fill((positions_BT == 0).unsqueeze(-1), 0.0)
        halves = [self.enorm(embeddings_BTD), self.hnorm(states_BTD)]
        if self.config.concat == "hidden_first":
            halves.reverse()
        fused_BTD = self.eh_proj(torch.cat(halves, dim=-1))
        return self._run[0](fused_BTD, positions_BT, allowed, key_positions_BS, cache)

    @torch.no_grad()
    def _start_near_identity(self) -> None:
        """eh_proj = [small; identity]: the block starts from a state it knows, the trunk's."""
        size = self.eh_proj.out_features
        embedding_half = slice(0, size) if self.config.concat == "embedding_first" else slice(size, 2 * size)
        hidden_half = slice(size, 2 * size) if self.config.concat == "embedding_first" else slice(0, size)
        nn.init.normal_(self.eh_proj.weight[:, embedding_half], std=0.02)
        self.eh_proj.weight[:, hidden_half] = torch.eye(size, dtype=self.eh_proj.weight.dtype)


class SequentialHeads(Heads):
    """``config.num_modules`` distinct modules, or one module for every depth (``config.unrolled``).

    ``output``: the one own output matrix of all depths, None where modules have their own or the trunk's is shared.
    """

    reads_tokens = True

    def __init__(self, trunk: Trunk, config: HeadsConfig, draft_ids_V: torch.Tensor | None = None) -> None:
        refuse_for_heads(trunk)
        super().__init__(trunk, config, draft_ids_V)
        each = config.output_per_module
        self.output = self.new_output() if config.own_output and not each else None
        self.modules_by_depth = nn.ModuleList(
            SequentialModule(trunk, config, self.new_output() if each else None) for _ in range(config.num_modules)
        )
        self.chain: FusedChain | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy has ordinary layers again, and no kernel."""
        return {**self.__dict__, "chain": None}

    def pack(self) -> None:
        """See Heads."""
        super().pack()
        self.chain = FusedChain.of(self)

    def module_at(self, depth: int) -> SequentialModule:
        """Module of ``depth`` (1-based)."""
        return self.modules_by_depth[0 if self.config.unrolled else depth - 1]  # type: ignore[return-value]

    @property
    def layer_kinds(self) -> list[str]:
        """See Heads."""
        return self.module_at(1).runner.kinds[:1]

    @property
    def layer_window(self) -> int | None:
        """See Heads."""
        return self.module_at(1).runner.window

    def output_at(self, depth: int) -> nn.Module | None:
        """See Heads."""
        own = self.module_at(depth).output
        return self.output if own is None else own

    def training_states(
        self,
        trunk_states: States,
        embeddings_BTD: torch.Tensor,
        doc_ids_BT: torch.Tensor,
        num_depths: int | None = None,
    ) -> list[torch.Tensor]:
        """See Heads. Unrolled depths read the keys decoding has: depth 1's of true tokens, then their own chain."""
        positions_BT = document_positions(doc_ids_BT)
        causal_BTT = causal_mask(doc_ids_BT)
        own_chain_BTT = torch.eye(doc_ids_BT.shape[1], dtype=torch.bool, device=doc_ids_BT.device).expand_as(causal_BTT)
        chain = _ChainKeys()
        state_BTD = self.trunk_side(trunk_states)
        outputs = []
        for depth in range(1, (num_depths or self.config.num_depths) + 1):
            shifted_BTD = _shift_left(embeddings_BTD, depth)
            if self.config.unrolled:
                allowed = torch.cat([causal_BTT, *[own_chain_BTT] * (depth - 1)], dim=2)
                key_positions = torch.cat([positions_BT + m for m in range(depth)], dim=1)
                states, chain = self.run(
                    self._chained, state_BTD, shifted_BTD, positions_BT + depth - 1, allowed, key_positions, chain
                )
            else:
                states = self.run(self.module_at(depth), state_BTD, shifted_BTD, positions_BT, causal_BTT, positions_BT)
            outputs.append(states.post_BTD)
            state_BTD = self.feedback(states)
        return outputs

    def _chained(
        self,
        states_BTD: torch.Tensor,
        embeddings_BTD: torch.Tensor,
        positions_BT: torch.Tensor,
        allowed_BTS: torch.Tensor,
        key_positions_BS: torch.Tensor,
        chain: _ChainKeys,
    ) -> tuple[States, _ChainKeys]:
        """One unrolled depth, and the chain with its keys; the one given stays as it is, so this may run twice."""
        longer = chain.copy()
        states = self.module_at(1)(states_BTD, embeddings_BTD, positions_BT, allowed_BTS, key_positions_BS, longer)
        return states, longer

    def step(
        self,
        depth: int,
        states_BND: torch.Tensor,
        embeddings_BND: torch.Tensor | None,
        positions_BN: torch.Tensor,
        allowed: Masks,
        cache: Any,
    ) -> States:
        """See Heads."""
        assert embeddings_BND is not None
        return self.module_at(depth)(states_BND, embeddings_BND, positions_BN, allowed, cache=cache)

    def feedback(self, states: States) -> torch.Tensor:
        """The state handed to the next depth."""
        return states.post_BTD if self.config.feedback == "normed" else states.pre_BTD


class _ChainKeys:
    """Cache-shaped list of one layer's keys and values, a block of T entries a depth; keeps gradients."""

    def __init__(self, keys: Iterable[torch.Tensor] = (), values: Iterable[torch.Tensor] = ()) -> None:
        self.keys = list(keys)
        self.values = list(values)

    def copy(self) -> _ChainKeys:
        return _ChainKeys(self.keys, self.values)

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys.append(key)
        self.values.append(value)
        return torch.cat(self.keys, dim=2), torch.cat(self.values, dim=2)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return sum(key.shape[2] for key in self.keys)


def _shift_left(embeddings_BTD: torch.Tensor, by: int) -> torch.Tensor:
    shifted = torch.zeros_like(embeddings_BTD)
    if by < embeddings_BTD.shape[1]:
        shifted[:, :-by] = embeddings_BTD[:, by:]
    return shifted
