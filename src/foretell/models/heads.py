"""Heads: the one interface behind which every kind of head guesses ahead, in training and in decoding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from foretell.config import HeadsConfig
from foretell.errors import UsageError
from foretell.models.decoder import DecoderRunner, Masks, States
from foretell.models.packed import pack_linears
from foretell.models.quantised import dense_weight
from foretell.models.shards import whole

if TYPE_CHECKING:
    from foretell.models.trunk import Trunk

R = TypeVar("R")


class Heads(nn.Module, ABC):
    """Owns only the head's tensors; the trunk is borrowed (its embedding, output head and rotary embedding).

    ``draft_ids_V``: reduced draft vocabulary as ascending token ids, or None for the trunk's whole vocabulary.
    ``reads_tokens``: a depth reads the token drafted before it, so depths come one after the other.
    ``checkpointing``: in training, recompute what is inside a depth's module instead of keeping it.
    """

    reads_tokens: ClassVar[bool]
    checkpointing: bool = False
    draft_ids_V: torch.Tensor | None
    modules_by_depth: nn.ModuleList

    def __init__(self, trunk: Trunk, config: HeadsConfig, draft_ids_V: torch.Tensor | None = None) -> None:
        super().__init__()
        self.config = config
        self._borrowed = (trunk,)  # a tuple keeps the trunk out of this module's parameters
        self.register_buffer("draft_ids_V", draft_ids_V, persistent=True)
        self._draft_output: tuple[nn.Module, ...] = ()
        if config.hidden_source == "below":
            trunk.keep_below()

    @property
    def trunk(self) -> Trunk:
        """The trunk these heads guess for."""
        return self._borrowed[0]

    @property
    def device(self) -> torch.device:
        """Where the heads run: on the trunk's last device, where its states come out."""
        return self.trunk.states_device

    @abstractmethod
    def training_states(
        self,
        trunk_states: States,
        embeddings_BTD: torch.Tensor,
        doc_ids_BT: torch.Tensor,
        num_depths: int | None = None,
    ) -> list[torch.Tensor]:
        """State of every depth as ``project`` takes it, [(B, T, D)] * num_depths; depth k at i predicts t_(i+k+1).

        ``num_depths``: the first so many, None = all.
        """

    @abstractmethod
    def step(
        self,
        depth: int,
        states_BND: torch.Tensor,
        embeddings_BND: torch.Tensor | None,
        positions_BN: torch.Tensor,
        allowed: Masks,
        cache: Any,
    ) -> States:
        """Decoding: run the module of ``depth`` (1-based) on states, and tokens where it reads any, against its cache.

        A module without attention (``attends``) looks at its states alone.
        """

    @property
    def attends(self) -> bool:
        """True where modules look back at earlier positions, so that decoding keeps their keys and values."""
        return True

    @property
    def layer_kinds(self) -> list[str]:
        """Kinds of a module's attention layers (there is one, or none), as caches need to know them."""
        return []

    @property
    def layer_window(self) -> int | None:
        """Tokens that a module looks back, where its layer is a sliding one."""
        return None

    def trunk_side(self, states: States) -> torch.Tensor:
        """The trunk state these heads read, on their device. Raises UsageError where it was not kept."""
        source = self.config.hidden_source
        if source != "below":
            return (states.post_BTD if source == "post" else states.pre_BTD).to(self.device)
        if states.below_BTD is None:
            raise UsageError(
                'heads with hidden_source "below" read what enters the trunk\'s last layer, and these states do not '
                "hold it (states cached on disk never do); train with cache_states = false"
            )
        return states.below_BTD.to(self.device)

    @abstractmethod
    def output_at(self, depth: int) -> nn.Module | None:
        """The heads' own output matrix of ``depth``, or None where the trunk's output head is shared."""

    def output_parameters(self, depth: int) -> list[nn.Parameter]:
        """The heads' own parameters that ``project`` uses at ``depth``; none where the trunk's matrix is shared."""
        output = self.output_at(depth)
        return [] if output is None else list(output.parameters())

    def project(self, states: torch.Tensor, depth: int) -> torch.Tensor:
        """Head states (..., D) of ``depth`` -> logits over the draft vocabulary (..., V)."""
        output = self.output_at(depth)
        return self.trunk_draft_logits(states) if output is None else self.trunk.scale_logits(output(states))

    def trunk_draft_logits(self, trunk_states_post: torch.Tensor) -> torch.Tensor:
        """The trunk's own logits (..., V), cut to the draft vocabulary: what the heads should imitate."""
        if self.draft_ids_V is None:
            return self.trunk.project(trunk_states_post)
        weight = self.trunk.output_head.weight
        if weight.requires_grad and (self.training or torch.is_grad_enabled()):  # a copy would fall behind
            return self.trunk.scale_logits(F.linear(trunk_states_post, weight[self.draft_ids_V]))
        return self.trunk.scale_logits(self.draft_rows()(trunk_states_post))

    def run(self, module: Callable[..., R], *inputs: Any) -> R:
        """Call a depth's module in training, checkpointed where asked for."""
        if self.checkpointing and torch.is_grad_enabled():
            return checkpoint(module, *inputs, use_reentrant=False)
        return module(*inputs)

    def pack(self) -> None:
        """Pack every linear layer for inference, the trunk's rows of the draft vocabulary included."""
        pack_linears(self, self.trunk.precision)
        for module in self.modules_by_depth:
            if isinstance(runner := getattr(module, "runner", None), DecoderRunner):
                runner.fuse()
        if self.output_at(1) is None and self.draft_ids_V is not None:
            holder = nn.Sequential(self.draft_rows())
            pack_linears(holder, self.trunk.precision)
            self._draft_output = (holder[0],)

    def draft_rows(self) -> nn.Module:
        """The trunk's output head cut to the draft vocabulary; made on first use, in a tuple to stay unregistered."""
        weight = self.trunk.output_head.weight
        stale = [m for m in self._draft_output if (m.weight.device, m.weight.dtype) != (self.device, weight.dtype)]
        if not self._draft_output or stale:
            with torch.inference_mode(False):  # made while decoding, it must serve training too
                linear = self.new_output()
            self._draft_output = (linear.requires_grad_(False),)
        return self._draft_output[0]

    def new_output(self) -> nn.Linear:
        """A matrix of its own with the trunk's values: its output head, whole, cut to the draft vocabulary."""
        rows = whole(dense_weight(self.trunk.output_head, self.trunk.dtype))
        if self.draft_ids_V is not None:
            rows = rows[self.draft_ids_V.to(rows.device)]
        rows = rows.to(self.device)
        linear = nn.Linear(rows.shape[1], rows.shape[0], bias=False, device="meta")
        linear.weight = nn.Parameter(rows.clone())
        return linear

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
