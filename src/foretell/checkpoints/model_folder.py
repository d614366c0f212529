"""A model folder of ours: a transformers checkpoint with its heads, as an adapter's two files, beside it.

transformers reads it as a plain model; ``foretell.load`` finds the heads in it. The config claims no native heads: what
a family's config says of them is set to 0, because no such tensor is in the files.
"""

from __future__ import annotations

import copy
import re
import shutil
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from foretell.checkpoints.adapter import write_adapter
from foretell.checkpoints.adapter_config import CONFIG_FILE, TENSOR_FILE
from foretell.checkpoints.files import check_folder, refuse_not_finite, written_whole
from foretell.checkpoints.native import without_claims
from foretell.models.heads import Heads
from foretell.models.shards import whole
from foretell.models.trunk import Trunk

_OURS = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|chat_template|tekken"
    r"|model\.safetensors\.index)\.json|model(-\d+-of-\d+)?\.safetensors|(vocab|merges)\.txt|(tokenizer|spiece)\.model"
    rf"|chat_template\.jinja|additional_chat_templates|{re.escape(CONFIG_FILE)}|{re.escape(TENSOR_FILE)}"
)
"""Names that ``save_model`` and transformers give files; a folder with others is left alone."""


def save_model(
    trunk: Trunk,
    heads: Heads | None,
    folder: str | PathLike[str],
    training: dict[str, Any] | None = None,
    *,
    dtype: torch.dtype | None = None,
    overwrite: bool = False,
) -> None:
    """Write trunk, tokenizer and heads, whole or not at all; ``dtype`` None keeps the one they have.

    Raises CheckpointError where ``check_model_target`` does.
    """
    check_model_target(folder, overwrite)
    with written_whole(Path(folder)) as fresh:
        write_model(trunk, heads, fresh, training, dtype=dtype)


def write_model(
    trunk: Trunk,
    heads: Heads | None,
    folder: Path,
    training: dict[str, Any] | None = None,
    *,
    dtype: torch.dtype | None = None,
    is_main: bool = True,
) -> None:
    """The files of ``save_model`` into an existing folder. Every process must call, ``is_main`` alone writes."""
    weights = _weights(trunk, dtype, keep=is_main)
    if is_main:
        refuse_not_finite("trunk", weights, "not saved")
        model = trunk.model
        config, kept = without_claims(copy.deepcopy(model.config)), model.config
        if dtype is not None:
            config.dtype = dtype
        model.config = config
        try:
            model.save_pretrained(folder, state_dict=weights)
        finally:
            model.config = kept
        for file in folder.glob("*.safetensors"):
            shutil.copymode(folder / "config.json", file)  # safetensors lets only the owner read
        if trunk.tokenizer is not None:
            trunk.tokenizer.save_pretrained(folder)
    if heads is not None:
        write_adapter(heads, folder, training, dtype=dtype or trunk.dtype, is_main=is_main)


def check_model_target(folder: str | PathLike[str], overwrite: bool) -> None:
    """Raise CheckpointError where ``save_model`` would refuse ``folder``: ask before a long training, not after."""
    check_folder(Path(folder), "a model", lambda name: bool(_OURS.fullmatch(name)), overwrite)


def _weights(trunk: Trunk, dtype: torch.dtype | None, keep: bool) -> dict[str, torch.Tensor]:
    """The trunk's tensors by name, whole; tied ones stay one tensor, so that they are written once.

    Processes that do not ``keep`` them only take part in gathering.
    """
    made: dict[int, torch.Tensor | None] = {}
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in trunk.model.state_dict(keep_vars=True).items():
        if id(tensor) not in made:
            full = whole(tensor.detach())
            made[id(tensor)] = _stored(full, dtype) if keep else None
        if (ready := made[id(tensor)]) is not None:
            weights[name] = ready
    return weights


def _stored(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    return tensor.cpu().to(dtype) if dtype is not None and tensor.is_floating_point() else tensor.cpu()
