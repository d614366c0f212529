"""Heads for the state after the trunk's final norm -> heads for the one before it, nearly the same."""

from __future__ import annotations

import argparse
import inspect
from dataclasses import replace
from os import PathLike
from pathlib import Path

import torch

from foretell.checkpoints.adapter import check_target, load_adapter, save_adapter
from foretell.checkpoints.folds import centre, fold_gain_into_norm, is_centred, uncentre
from foretell.checkpoints.load import load_trunk
from foretell.convert.report import Conversion
from foretell.errors import CheckpointError
from foretell.models.build import build_heads
from foretell.models.sequential import SequentialHeads, SequentialModule
from foretell.models.trunk import Trunk

_NUM_TOKENS = 1024


@torch.no_grad()
def fold_norm(
    trunk: str | PathLike[str], adapter: str | PathLike[str], target: str | PathLike[str], *, overwrite: bool = False
) -> Conversion:
    """Write ``adapter``, whose heads read the state after the final norm, for the state before it, to ``target``.

    The norm's gain goes into hnorm, with the mean scale of states on a text of Python's standard library; what differs
    from state to state is lost, so the result wants a little training. Raises CheckpointError.
    """
    check_target(target, overwrite)
    loaded = load_trunk(trunk)
    heads = load_adapter(loaded, adapter, torch.float32)
    if not isinstance(heads, SequentialHeads) or heads.config.hidden_source != "post":
        raise CheckpointError(
            f"{adapter}: {heads.config.kind} heads with hidden_source {heads.config.hidden_source}; this folds "
            "sequential ones with hidden_source post"
        )
    gain_D = _gain(loaded.final_norm)
    rms, spread = _scale(loaded, gain_D)
    folded = build_heads(loaded, replace(heads.config, hidden_source="pre"), heads.draft_ids_V).float()
    folded.load_state_dict(heads.state_dict())
    for module in folded.modules_by_depth:
        assert isinstance(module, SequentialModule)
        weight = next(module.hnorm.parameters())
        hnorm = fold_gain_into_norm(_gain(module.hnorm), gain_D, rms)
        weight.copy_(centre(hnorm) if is_centred(module.hnorm) else hnorm)
    save_adapter(folded, target, {"folded_from": Path(adapter).name}, overwrite=overwrite)
    report = Conversion("fold-norm", str(adapter), str(target))
    report.notes.append(
        f"the state's scale after the norm is {rms:.2f}, with a spread of {spread / rms:.0%}, which is lost: train the "
        "heads a little, as docs/guides/engines.md does"
    )
    return report


def _gain(norm: torch.nn.Module) -> torch.Tensor:
    weight = next(norm.parameters()).detach().float()
    return uncentre(weight) if is_centred(norm) else weight


def _scale(trunk: Trunk, gain_D: torch.Tensor) -> tuple[float, float]:
    """Mean and standard deviation of rms(g x^) over the states of a text."""
    if trunk.tokenizer is None:
        raise CheckpointError(f"{trunk.name}: has no tokenizer, which is needed for a text to measure its states on")
    ids = trunk.tokenizer(inspect.getsource(argparse), add_special_tokens=False)["input_ids"]
    ids_BT = torch.tensor([ids[: min(_NUM_TOKENS, trunk.max_positions)]])
    states_BTD = trunk.text_states(ids_BT, torch.zeros_like(ids_BT)).pre_BTD.float()
    unit_BTD = states_BTD / states_BTD.pow(2).mean(-1, keepdim=True).sqrt()
    rms_BT = (unit_BTD * gain_D).pow(2).mean(-1).sqrt()
    return rms_BT.mean().item(), rms_BT.std().item()
