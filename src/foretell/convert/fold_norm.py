"""Heads for the state after the trunk's final norm -> heads for the one before it, nearly the same."""

from __future__ import annotations

import warnings
from dataclasses import replace
from os import PathLike
from pathlib import Path

import torch

from foretell.checkpoints.adapter import StaleHeadsWarning, load_adapter, save_adapter
from foretell.checkpoints.folds import centre, fold_gain_into_norm, is_centred
from foretell.checkpoints.load import load_trunk
from foretell.convert.folder import check_adapter_target
from foretell.convert.norm_fold import gain, norm_fold
from foretell.convert.report import Conversion
from foretell.errors import CheckpointError
from foretell.models.build import build_heads
from foretell.models.sequential import SequentialHeads, SequentialModule


@torch.no_grad()
def fold_norm(
    trunk: str | PathLike[str], adapter: str | PathLike[str], target: str | PathLike[str], *, overwrite: bool = False
) -> Conversion:
    """Write ``adapter``, whose heads read the state after the final norm, for the state before it, to ``target``.

    The norm's gain goes into hnorm, with the mean scale of states on a text of Python's standard library; what differs
    from state to state is lost, so the result wants a little training. Raises CheckpointError.
    """
    check_adapter_target(target, [Path(adapter)], overwrite)
    loaded = load_trunk(trunk)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StaleHeadsWarning)  # they are to be trained
        heads = load_adapter(loaded, adapter, torch.float32)
    if not isinstance(heads, SequentialHeads) or heads.config.hidden_source != "post":
        raise CheckpointError(
            f"{adapter}: {heads.config.kind} heads with hidden_source {heads.config.hidden_source}; this folds "
            "sequential ones with hidden_source post"
        )
    fold = norm_fold(loaded)
    folded = build_heads(loaded, replace(heads.config, hidden_source="pre"), heads.draft_ids_V).float()
    folded.load_state_dict(heads.state_dict())
    for module in folded.modules_by_depth:
        assert isinstance(module, SequentialModule)
        weight = next(module.hnorm.parameters())
        hnorm = fold_gain_into_norm(gain(module.hnorm), fold.gain_D, fold.rms)
        weight.copy_(centre(hnorm) if is_centred(module.hnorm) else hnorm)
    save_adapter(folded, target, {"folded_from": Path(adapter).name}, overwrite=overwrite)
    report = Conversion("fold-norm", str(adapter), str(target))
    report.notes.append(
        f"the state's scale after the norm is {fold.rms:.2f}, with a spread of {fold.spread / fold.rms:.0%}, which is "
        "lost, and deeper drafts hand on another state: train the heads a little, as docs/guides/engines.md does"
    )
    return report
