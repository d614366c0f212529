"""The final norm's gain, out of the trunk's norm and into its neighbours: what has to be known of the states."""

from __future__ import annotations

import argparse
import inspect
from dataclasses import dataclass

import torch
from torch import nn

from foretell.checkpoints.folds import is_centred, uncentre
from foretell.errors import CheckpointError
from foretell.models.trunk import Trunk

_NUM_TOKENS = 1024
_LEAST = 1e-3


@dataclass(frozen=True)
class NormFold:
    """``gain_D``: the final norm's. ``rms`` and ``spread``: mean and deviation of rms(g x^) over states of a text."""

    gain_D: torch.Tensor
    rms: float
    spread: float


@torch.no_grad()
def norm_fold(trunk: Trunk) -> NormFold:
    """Measure ``trunk`` on a text of Python's standard library.

    Raises CheckpointError where it has no tokenizer, or where a gain near zero cannot be divided by.
    """
    gain_D = gain(trunk.final_norm)
    if gain_D.abs().min() < _LEAST * gain_D.abs().mean():
        raise CheckpointError(
            f"{trunk.name}: the final norm has a gain of {gain_D.abs().min():.1e}, which cannot be taken out of the "
            "heads' norm; export to another layout"
        )
    if trunk.tokenizer is None:
        raise CheckpointError(f"{trunk.name}: has no tokenizer, which is needed for a text to measure its states on")
    ids = trunk.tokenizer(inspect.getsource(argparse), add_special_tokens=False)["input_ids"]
    ids_BT = torch.tensor([ids[: min(_NUM_TOKENS, trunk.max_positions)]])
    states_BTD = trunk.text_states(ids_BT, torch.zeros_like(ids_BT)).pre_BTD.float()
    unit_BTD = states_BTD / states_BTD.pow(2).mean(-1, keepdim=True).sqrt()
    rms_BT = (unit_BTD * gain_D).pow(2).mean(-1).sqrt()
    return NormFold(gain_D, rms_BT.mean().item(), rms_BT.std().item())


def gain(norm: nn.Module) -> torch.Tensor:
    """What a norm multiplies by, (D,) in float32, whether it stores that or an offset from 1."""
    weight = next(norm.parameters()).detach().float()
    return uncentre(weight) if is_centred(norm) else weight
