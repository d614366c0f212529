"""TrainingModel: trunk and heads with their joint loss, for transformers' Trainer, TRL or a bare loop.

model = TrainingModel(trunk, heads, ObjectiveConfig(), train_trunk=True)
model(**packed_rows)["loss"].backward()
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import nn

from foretell.models.decoder import States
from foretell.models.heads import Heads
from foretell.models.trunk import Trunk
from foretell.training.gradient_share import GradientShare, gradient_share
from foretell.training.meter import Meter
from foretell.training.objective import Batch, JointLoss, joint_loss
from foretell.training.recipe import ObjectiveConfig
from foretell.training.states import trunk_outputs
from foretell.training.targets import count_valid


class TrainingModel(nn.Module):
    """``heads`` None: plain next-token training. A frozen trunk is borrowed, never registered, so that no optimizer and
    no checkpoint holds a tensor of it. With ``bf16`` the forward pass runs under autocast.

    ``progress``: share of the run that is done, which schedules go by; whoever steps sets it.
    """

    accepts_loss_kwargs = True

    def __init__(
        self, trunk: Trunk, heads: Heads | None, objective: ObjectiveConfig, train_trunk: bool, bf16: bool = False
    ) -> None:
        super().__init__()
        self._borrowed = (trunk,)
        self.trained_trunk = trunk if train_trunk else None
        self.heads = heads
        self.objective = objective
        self.bf16 = bf16
        self.progress = 0.0
        self.gradient_shares_due = False
        self.meter = Meter()

    @property
    def trunk(self) -> Trunk:
        """The trunk, trained or frozen."""
        return self._borrowed[0]

    @property
    def num_depths(self) -> int:
        """Depths of the heads, 0 without any."""
        return 0 if self.heads is None else self.heads.config.num_depths

    def forward(
        self,
        token_ids: torch.Tensor,
        doc_ids: torch.Tensor,
        supervised: torch.Tensor,
        states: torch.Tensor | None = None,
        argmax: torch.Tensor | None = None,
        row: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """Loss of one micro-batch of packed rows, each (B, T); ``doc_ids`` -1 is padding, ``supervised`` marks labels.

        ``states``, ``argmax``: the frozen trunk's, where they are cached. ``num_items_in_batch``: (K+1,) valid
        positions per depth of the whole accumulation window over all processes (``count_valid``); by default this
        batch's.
        """
        token_ids, doc_ids = token_ids.long(), doc_ids.long()
        if num_items_in_batch is None:
            num_items_in_batch = count_valid(doc_ids, supervised, self.num_depths)
        with torch.autocast(token_ids.device.type, torch.bfloat16) if self.bf16 else nullcontext():
            trunk_states, argmax_BT = self._trunk_states(token_ids, doc_ids, states, argmax)
            batch = Batch(token_ids, doc_ids, supervised, trunk_states, argmax_BT, row)
            loss = joint_loss(
                self.trunk,
                self.heads,
                batch,
                self.objective,
                num_items_in_batch,
                self.progress,
                train_trunk=self.trained_trunk is not None,
            )
            if self.gradient_shares_due and self.trained_trunk is not None:
                self._count_shares(gradient_share(loss, trunk_states))
        self._count(loss)
        return {"loss": loss.total}

    def _trunk_states(
        self,
        token_ids_BT: torch.Tensor,
        doc_ids_BT: torch.Tensor,
        pre_BTD: torch.Tensor | None,
        argmax_BT: torch.Tensor | None,
    ) -> tuple[States, torch.Tensor | None]:
        if self.trained_trunk is not None:
            return self.trunk.text_states(token_ids_BT, doc_ids_BT), None
        if pre_BTD is None or argmax_BT is None:
            return trunk_outputs(self.trunk, token_ids_BT, doc_ids_BT)
        with torch.no_grad():
            return States(pre_BTD, self.trunk.final_norm(pre_BTD)), argmax_BT.long()

    def _count(self, loss: JointLoss) -> None:
        parts = [*([] if loss.main is None else [(0, loss.main)]), *enumerate(loss.depths, start=1)]
        for depth, part in parts:
            self.meter.add(f"loss_{depth}", part.loss_sum.detach(), part.num_valid)
            self.meter.add(f"top1_{depth}", part.num_correct, part.num_valid)
            if depth:
                self.meter.add(f"agreement_{depth}", part.num_agreed, part.num_valid)
                self.meter.add(f"chained_{depth}", part.num_chained, int(part.num_chain))
        if loss.depths and self.trained_trunk is not None:
            self.meter.add("lambda", loss.phase.mtp_lambda, 1)

    def _count_shares(self, share: GradientShare) -> None:
        for depth, value in enumerate([share.main, *share.depths]):
            self.meter.add(f"gradient_share_{depth}", value, 1)
        for depth, value in enumerate(share.cosines, start=1):
            self.meter.add(f"gradient_cosine_{depth}", value, 1)
