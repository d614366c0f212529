"""The final norm's gain, out of the trunk's norm and into its neighbours: what has to be known of the states."""

from __future__ import annotations

import argparse
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from foretell.checkpoints.folds import fold_gain_into_output, is_centred, uncentre
from foretell.checkpoints.layer_names import stored_name
from foretell.checkpoints.stored import StoredModel
from foretell.convert.report import Conversion
from foretell.convert.shards import Plan
from foretell.convert.skeleton import final_norm, module_name, stored_weight
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


def fold_trunk(
    source: StoredModel,
    model: Any,
    plan: Plan,
    config: dict[str, Any],
    report: Conversion,
    added: dict[str, torch.Tensor],
) -> None:
    """Plan the trunk of ``source`` with gain 1 in its final norm, and an output head that has the gain.

    ``model``: the trunk without values. A tied output head becomes one of its own, among ``added``.
    """
    norm = final_norm(model)
    norm_name = stored_weight(source, model, norm)
    centred = is_centred(norm)
    weight = next(source.read([norm_name]))[1]
    gain_D = uncentre(weight) if centred else weight
    unit = torch.zeros_like(weight) if centred else torch.ones_like(weight)
    output = stored_name(model, f"{module_name(model, model.get_output_embeddings())}.weight")
    plan.changed = {norm_name: lambda _: unit}
    why = "the final norm's gain is in the output head now"
    if output in source.headers:
        plan.changed[output] = lambda values: fold_gain_into_output(values, gain_D)
    else:
        embedding = stored_weight(source, model, model.get_input_embeddings())
        added[output] = fold_gain_into_output(next(source.read([embedding]))[1], gain_D)
        report.added[output] = f"output head of its own, untied from the embedding: {why}"
    config["tie_word_embeddings"] = False
    report.changed |= dict.fromkeys(plan.changed, why)
    report.notes.append("the trunk's logits are the same but for one rounding of the output head")
