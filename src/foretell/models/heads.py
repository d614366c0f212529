"""Heads: the one interface behind which every kind of head guesses ahead, in training and in decoding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from foretell.config import HeadsConfig
from foretell.models.decoder import States
from foretell.models.packed import pack_linears

if TYPE_CHECKING:
    from foretell.models.trunk import Trunk


class Heads(nn.Module, ABC):
    """Owns only the head's tensors; the trunk is borrowed (its embedding, output head and rotary embedding).

    ``draft_ids_V``: reduced draft vocabulary as ascending token ids, or None for the trunk's whole vocabulary.
    """

    draft_ids_V: torch.Tensor | None

    def __init__(self, trunk: Trunk, config: HeadsConfig, draft_ids_V: torch.Tensor | None = None) -> None:
        super().__init__()
        self.config = config
        self._borrowed = (trunk,)  # a tuple keeps the trunk out of this module's parameters
        self.register_buffer("draft_ids_V", draft_ids_V, persistent=True)
        size = trunk.vocab_size if draft_ids_V is None else len(draft_ids_V)
        self.output: nn.Linear | None = None
        if config.own_output:
            self.output = nn.Linear(trunk.hidden_size, size, bias=False, dtype=trunk.dtype, device=trunk.device)
            with torch.no_grad():
                self.output.weight.copy_(self._trunk_rows())
        self._draft_output: tuple[nn.Module, ...] = ()

    @property
    def trunk(self) -> Trunk:
        """The trunk these heads guess for."""
        return self._borrowed[0]

    @abstractmethod
    def training_states(
        self, trunk_states: States, embeddings_BTD: torch.Tensor, doc_ids_BT: torch.Tensor
    ) -> list[torch.Tensor]:
        """Post-norm state of every depth, [(B, T, D)] * num_depths; depth k at position i predicts t_(i+k+1)."""

    @abstractmethod
    def step(
        self,
        depth: int,
        states_BND: torch.Tensor,
        embeddings_BND: torch.Tensor,
        positions_BN: torch.Tensor,
        allowed_BNS: torch.Tensor,
        key_positions_BS: torch.Tensor,
        cache: Any,
    ) -> States:
        """Decoding: run the module of ``depth`` (1-based) on (state, token) pairs against its cache."""

    def feedback(self, states: States) -> torch.Tensor:
        """The state handed to the next depth."""
        return states.post_BTD if self.config.feedback == "normed" else states.pre_BTD

    def trunk_side(self, states: States) -> torch.Tensor:
        """The trunk state these heads read."""
        return states.post_BTD if self.config.hidden_source == "post" else states.pre_BTD

    def project(self, states: torch.Tensor) -> torch.Tensor:
        """Post-norm head states (..., D) -> logits over the draft vocabulary (..., V)."""
        if self.output is not None:
            return self.trunk.scale_logits(self.output(states))
        return self.trunk_draft_logits(states)

    def trunk_draft_logits(self, trunk_states_post: torch.Tensor) -> torch.Tensor:
        """The trunk's own logits (..., V), cut to the draft vocabulary: what the heads should imitate."""
        if self.draft_ids_V is None:
            return self.trunk.project(trunk_states_post)
        return self.trunk.scale_logits(self._draft_rows()(trunk_states_post))

    def pack(self) -> None:
        """Pack every linear layer for inference, the trunk's rows of the draft vocabulary included."""
        pack_linears(self)
        if self.output is None and self.draft_ids_V is not None:
            holder = nn.Sequential(self._draft_rows())
            pack_linears(holder)
            self._draft_output = (holder[0],)

    def _draft_rows(self) -> nn.Module:
        """The trunk's output head cut to the draft vocabulary; made on first use, in a tuple to stay unregistered."""
        weight = self.trunk.output_head.weight
        stale = [m for m in self._draft_output if (m.weight.device, m.weight.dtype) != (weight.device, weight.dtype)]
        if not self._draft_output or stale:
            with torch.inference_mode(False):  # made while decoding, it must serve training too
                rows = self._trunk_rows()
                linear = nn.Linear(rows.shape[1], rows.shape[0], bias=False, dtype=rows.dtype, device=rows.device)
                linear.weight = nn.Parameter(rows.clone(), requires_grad=False)
            self._draft_output = (linear,)
        return self._draft_output[0]

    def to_token_ids(self, draft_ids: torch.Tensor) -> torch.Tensor:
        """Index in the draft vocabulary -> the trunk's token id."""
        return draft_ids if self.draft_ids_V is None else self.draft_ids_V[draft_ids]

    def to_draft_ids(self, token_ids: torch.Tensor) -> torch.Tensor:
        """The trunk's token id -> index in the draft vocabulary, -100 where it has none (no target)."""
        if self.draft_ids_V is None:
            return token_ids
        table = torch.full((self.trunk.vocab_size,), -100, dtype=torch.long, device=token_ids.device)
        table[self.draft_ids_V] = torch.arange(len(self.draft_ids_V), device=token_ids.device)
        return torch.where(token_ids >= 0, table[token_ids.clamp(min=0)], -100)

    def _trunk_rows(self) -> torch.Tensor:
        weight = self.trunk.output_head.weight.detach()
        return weight if self.draft_ids_V is None else weight[self.draft_ids_V]
