"""The loss of a batch: L = L_main + lambda * sum_k weight_k L_k, or the heads' part alone where the trunk is frozen.

L_k = sum over the valid positions of depth k / their number in the whole accumulation window, over all processes;
L_main is depth 0, the trunk's own next-token loss. Gradients are cut, where they are, between trunk and heads only.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace

import torch

from foretell.models.decoder import States
from foretell.models.heads import Heads
from foretell.models.trunk import Trunk
from foretell.training.chain import Chain
from foretell.training.chunked import OutputGradients, Score, chunked_loss, heads_projection, trunk_projection
from foretell.training.losses import against_trunk, cross_entropy
from foretell.training.recipe import ObjectiveConfig
from foretell.training.schedule import Phase, depth_weights, phase_at
from foretell.training.targets import ahead_of, valid_mask


@dataclass
class Batch:
    """Packed rows: token ids, document ids (-1 = padding), which tokens are labels; and what the trunk made of them.

    ``argmax_BT[i]`` is the trunk's own choice for token i+1; None where the trunk trains: the main loss then finds it.
    ``rows_B``: which rows of the data these are, if known.
    """

    token_ids_BT: torch.Tensor
    doc_ids_BT: torch.Tensor
    supervised_BT: torch.Tensor
    states: States
    argmax_BT: torch.Tensor | None
    rows_B: torch.Tensor | None = None


@dataclass
class DepthLoss:
    """Sums over the valid positions of one depth; depth 0 is the trunk itself, which always agrees and has no chain.

    ``num_agreed`` drafts equal the trunk's argmax, ``num_correct`` the data's token; ``num_chained`` of ``num_chain``
    chains that come as far are accepted here (see chain). ``loss_sum`` carries the gradient of states alone.
    """

    loss_sum: torch.Tensor
    num_valid: int
    num_agreed: torch.Tensor
    num_correct: torch.Tensor
    num_chain: torch.Tensor
    num_chained: torch.Tensor


@dataclass
class JointLoss:
    """``total`` is what to call backward on. ``main``: None for a frozen trunk; ``depths``: the active ones, from 1.

    ``terms``: what ``total`` adds up, weighted and divided by the counts: the main loss, if any, then each depth's.
    """

    total: torch.Tensor
    main: DepthLoss | None
    depths: list[DepthLoss]
    phase: Phase
    terms: list[torch.Tensor] = field(default_factory=list)


def joint_loss(
    trunk: Trunk,
    heads: Heads | None,
    batch: Batch,
    config: ObjectiveConfig,
    counts: torch.Tensor,
    progress: float,
    train_trunk: bool,
) -> JointLoss:
    """Loss of one micro-batch at ``progress`` (0 to 1) of the run. ``heads`` None: plain next-token training.

    ``counts`` (K+1,): valid positions of the whole accumulation window (``count_valid``). A window without any gives
    loss 0 with finite (zero) gradients, and a warning.
    """
    num_depths = 0 if heads is None else heads.config.num_depths
    phase = phase_at(config, progress, num_depths, train_trunk)
    num_valid = counts.tolist()
    if num_valid[0 if train_trunk else 1] == 0:  # a deeper target is a target of the depths before it, too
        _warn_of_nothing(batch)
    weights = depth_weights(config, num_depths)
    scales = [phase.mtp_lambda * w / max(n, 1) for w, n in zip(weights, num_valid[1:], strict=True)]
    gradients = OutputGradients()
    main, depths, terms = None, [], []
    if train_trunk:
        scale = 1 / max(num_valid[0], 1)
        main, argmax_BT = _main_loss(trunk, batch, scale, gradients)
        terms.append(main.loss_sum * scale)
        if batch.argmax_BT is None:
            batch = replace(batch, argmax_BT=argmax_BT)
    if heads is not None and phase.num_active:
        depths = _depth_losses(heads, batch, config, phase, scales, train_trunk, gradients)
        terms += [part.loss_sum * scale for part, scale in zip(depths, scales, strict=False)]
    total = sum(terms, gradients.term(terms[0]))
    return JointLoss(total, main, depths, phase, terms)


def _main_loss(trunk: Trunk, batch: Batch, scale: float, gradients: OutputGradients) -> tuple[DepthLoss, torch.Tensor]:
    """The trunk's next-token loss, and its argmax (B, T) at the positions that have a target, -100 elsewhere."""
    valid_BT = valid_mask(batch.doc_ids_BT, batch.supervised_BT, 0)
    labels_N = ahead_of(batch.token_ids_BT, valid_BT, 1)
    loss_sum, argmax_N = chunked_loss(
        trunk_projection(trunk), cross_entropy, labels_N, batch.states.post_BTD[valid_BT], scale, gradients
    )
    argmax_BT = torch.full_like(batch.token_ids_BT, -100)
    argmax_BT[valid_BT] = argmax_N
    none = torch.zeros_like(labels_N).sum()
    part = DepthLoss(loss_sum, len(labels_N), none + len(labels_N), (argmax_N == labels_N).sum(), none, none)
    return part, argmax_BT


def _depth_losses(
    heads: Heads,
    batch: Batch,
    config: ObjectiveConfig,
    phase: Phase,
    scales: list[float],
    train_trunk: bool,
    gradients: OutputGradients,
) -> list[DepthLoss]:
    assert batch.argmax_BT is not None, "a frozen trunk's argmax comes with the batch"
    states, embeddings_BTD = batch.states, heads.trunk.embed(batch.token_ids_BT)
    if "trunk" in config.detach:
        states = States(*(None if side is None else side.detach() for side in states))  # type: ignore[arg-type]
    if "embedding" in config.detach:
        embeddings_BTD = embeddings_BTD.detach()
    states_by_depth = heads.training_states(states, embeddings_BTD, batch.doc_ids_BT, phase.num_active)
    chain = Chain(batch.token_ids_BT, batch.argmax_BT)
    parts = []
    for depth, state_BTD in enumerate(states_by_depth, start=1):
        valid_BT = valid_mask(batch.doc_ids_BT, batch.supervised_BT, depth)
        labels_N = ahead_of(batch.token_ids_BT, valid_BT, depth + 1)
        argmax_N = ahead_of(batch.argmax_BT, valid_BT, depth)
        if phase.loss == "ce":
            score: Score = cross_entropy
            goals = heads.to_draft_ids(argmax_N if config.target_for(train_trunk) == "argmax" else labels_N)
        else:
            score = against_trunk(heads, phase.loss)
            goals = ahead_of(batch.states.post_BTD, valid_BT, depth).detach()
        projection = heads_projection(heads, depth, "output" in config.detach)
        loss_sum, drafted_N = chunked_loss(projection, score, goals, state_BTD[valid_BT], scales[depth - 1], gradients)
        drafted_N = heads.to_token_ids(drafted_N)
        agreed_N = drafted_N == argmax_N
        num_correct = (drafted_N == labels_N).sum()
        parts.append(DepthLoss(loss_sum, len(labels_N), agreed_N.sum(), num_correct, *chain.extend(valid_BT, agreed_N)))
    return parts


def _warn_of_nothing(batch: Batch) -> None:
    rows = range(len(batch.token_ids_BT)) if batch.rows_B is None else batch.rows_B.tolist()
    warnings.warn(
        "no token of this batch is a target at any depth (all masked, or too short); loss is 0. "
        f"Its rows: {', '.join(map(str, rows))}",
        stacklevel=3,
    )
