"""Adapter: a folder with heads alone, ``mtp_config.json`` (what they are, whom they fit) and ``mtp.safetensors``.

Tensor names of sequential heads follow a layout that transformers' ``MtpModel`` reads: module k (from 0) is
``mtp.layers.{k}.`` with ``enorm``, ``hnorm``, ``eh_proj``, ``post_norm`` and the decoder layer's own names; an own
output matrix is ``mtp.output.weight``. Parallel heads are ``mtp.layers.{k}.`` with the layer's names or ``linear``,
``post_norm`` and, where it is their own, ``output``. Medusa heads are ``mtp.heads.{k}.blocks.{j}.linear`` and
``mtp.heads.{k}.output``. A reduced draft vocabulary is ``mtp.draft_ids``. What is shared with the trunk (embedding,
output head, final norm) is not stored.
"""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from foretell.checkpoints.adapter_config import (
    CONFIG_FILE,
    FORMAT_VERSION,
    TENSOR_FILE,
    AdapterInfo,
    TrunkInfo,
    read_adapter_config,
)
from foretell.checkpoints.files import (
    CheckpointWarning,
    TensorHeader,
    check_folder,
    one_line,
    read_headers,
    refuse_not_finite,
    written_whole,
)
from foretell.errors import AdapterMismatch, CheckpointError
from foretell.models.build import build_heads, in_type
from foretell.models.heads import Heads
from foretell.models.shards import whole
from foretell.models.trunk import Trunk

__all__ = [
    "AdapterInfo",
    "StaleHeadsWarning",
    "check_target",
    "load_adapter",
    "read_adapter_config",
    "save_adapter",
    "write_adapter",
]

_FLOATS = ("F32", "F16", "BF16")
_GO_ON = "Nothing was loaded. To run without these heads, leave them out (heads=None, or no --heads)."


class StaleHeadsWarning(CheckpointWarning):
    """Heads on a trunk whose weights are not those they were trained against: text stays exact, acceptance may drop."""


def save_adapter(
    heads: Heads,
    folder: str | PathLike[str],
    training: dict[str, Any] | None = None,
    *,
    dtype: torch.dtype = torch.bfloat16,
    overwrite: bool = False,
) -> None:
    """Write ``heads`` as an adapter, whole or not at all.

    Parameters are stored as ``dtype``; buffers (an expert router's bias) keep their own. ``training``: a summary to
    store with them. Raises CheckpointError where ``check_target`` does, and for values that are not finite.
    """
    target = Path(folder)
    check_target(target, overwrite)
    with written_whole(target) as fresh:
        write_adapter(heads, fresh, training, dtype=dtype)


def write_adapter(
    heads: Heads,
    folder: Path,
    training: dict[str, Any] | None = None,
    *,
    dtype: torch.dtype = torch.bfloat16,
    is_main: bool = True,
) -> None:
    """The two files of an adapter into an existing folder. Every process must call, ``is_main`` alone writes."""
    tensors = _to_disk(heads, dtype, keep=is_main)
    trunk = asdict(TrunkInfo.of(heads.trunk))
    if not is_main:
        return
    refuse_not_finite("heads", tensors, "not saved")
    size = 0 if heads.draft_ids_V is None else len(heads.draft_ids_V)
    config = {
        "format_version": FORMAT_VERSION,
        "heads": heads.config.to_dict() | {"draft_vocab_size": size},
        "trunk": trunk,
        "tensors": len(tensors),
        "training": training or {},
    }
    if size:
        config["draft_vocab"] = {"size": size, "coverage": heads.config.extra.get("draft_coverage")}
    save_file(tensors, folder / TENSOR_FILE, metadata={"format": "pt"})
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    shutil.copymode(folder / CONFIG_FILE, folder / TENSOR_FILE)  # safetensors lets only the owner read


def check_target(folder: str | PathLike[str], overwrite: bool) -> None:
    """Raise CheckpointError where ``save_adapter`` would refuse ``folder``: ask before a long training, not after."""
    check_folder(Path(folder), "an adapter", {CONFIG_FILE, TENSOR_FILE}.__contains__, overwrite)


def load_adapter(trunk: Trunk, folder: str | PathLike[str], dtype: torch.dtype | None = None) -> Heads:
    """Heads of an adapter on ``trunk``: its device, ``dtype`` or the trunk's type, eval mode, no gradients.

    Raises AdapterMismatch for another architecture, hidden or vocabulary size, and CheckpointError naming every tensor
    that is missing, unexpected, misshapen or not finite. Warns with StaleHeadsWarning where only the weights differ.
    """
    info = read_adapter_config(folder)
    _check_trunk(info, TrunkInfo.of(trunk))
    path = info.folder / TENSOR_FILE
    headers = read_headers(path)
    draft_ids = _read_draft_ids(path, headers, info.heads.draft_vocab_size, trunk)
    heads = in_type(build_heads(trunk, info.heads, draft_ids), dtype or trunk.dtype)
    wanted = {disk_name(name, heads.config.kind): tensor for name, tensor in heads.state_dict().items()}
    _check_names(info, headers, wanted)
    try:
        with safe_open(path, framework="pt") as file:
            stored = {name: file.get_tensor(name) for name in wanted}
    except Exception as error:  # the header was sound; whatever is wrong now is the file's body
        raise CheckpointError(f"{path}: cannot be read ({one_line(error)})") from error
    refuse_not_finite("heads", stored, _GO_ON)
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(stored[name])
    return heads.eval().requires_grad_(False)


def _check_trunk(info: AdapterInfo, trunk: TrunkInfo) -> None:
    made_for = info.trunk
    wrong = [
        f"{name} {getattr(made_for, name)} (here {getattr(trunk, name)})"
        for name in ("architecture", "hidden_size", "vocab_size")
        if getattr(made_for, name) != getattr(trunk, name)
    ]
    if wrong:
        raise AdapterMismatch(
            f"{info.folder}: made for {made_for.name}, which {trunk.name} is not: {', '.join(wrong)}. {_GO_ON}"
        )
    if made_for.fingerprint != trunk.fingerprint:
        warnings.warn(
            f"{info.folder}: these heads were trained against another trunk ({made_for.name}, fingerprint "
            f"{made_for.fingerprint}; {trunk.name} has {trunk.fingerprint}). Text stays exact, acceptance may drop; "
            "retrain them with: foretell train RECIPE",
            StaleHeadsWarning,
            stacklevel=4,
        )


def _read_draft_ids(path: Path, headers: dict[str, TensorHeader], size: int, trunk: Trunk) -> torch.Tensor | None:
    """The reduced draft vocabulary; a stand-in where it is missing or misshapen, which ``_check_names`` reports."""
    if size == 0:
        return None
    if not 0 < size <= trunk.vocab_size:
        raise CheckpointError(f"{path}: draft_vocab_size {size} is not in 1..{trunk.vocab_size}. {_GO_ON}")
    if headers.get("mtp.draft_ids") != TensorHeader((size,), "I64"):
        return torch.arange(size, device=trunk.states_device)
    with safe_open(path, framework="pt") as file:
        ids: torch.Tensor = file.get_tensor("mtp.draft_ids")
    if int(ids[0]) < 0 or int(ids[-1]) >= trunk.vocab_size or not bool((ids[1:] > ids[:-1]).all()):
        raise CheckpointError(
            f"{path}: mtp.draft_ids must be ascending, unique and within 0..{trunk.vocab_size - 1}. {_GO_ON}"
        )
    return ids.to(trunk.states_device)


def _check_names(info: AdapterInfo, headers: dict[str, TensorHeader], wanted: dict[str, torch.Tensor]) -> None:
    misshapen = []
    for name in sorted(set(headers) & set(wanted)):
        shape, dtype = headers[name]
        if shape != tuple(wanted[name].shape):
            misshapen.append(f"{name} {list(shape)} instead of {list(wanted[name].shape)}")
        elif dtype not in (_FLOATS if wanted[name].is_floating_point() else ("I64",)):
            misshapen.append(f"{name} of type {dtype}")
    found = {
        "missing": sorted(set(wanted) - set(headers)),
        "unexpected": sorted(set(headers) - set(wanted)),
        "misshapen": misshapen,
    }
    if not any(found.values()):
        if info.num_tensors != len(headers):
            raise CheckpointError(
                f"{info.folder}: {CONFIG_FILE} announces {info.num_tensors} tensors, {TENSOR_FILE} holds "
                f"{len(headers)}: the two files do not belong together. {_GO_ON}"
            )
        return
    lists = "; ".join(f"{len(names)} {problem}: {', '.join(names)}" for problem, names in found.items() if names)
    raise CheckpointError(f"{info.folder / TENSOR_FILE}: the tensors are not those of these heads; {lists}. {_GO_ON}")


def _to_disk(heads: Heads, dtype: torch.dtype, keep: bool) -> dict[str, torch.Tensor]:
    """Tensors by name on disk; processes that do not ``keep`` them only take part in gathering."""
    parameters = {name for name, _ in heads.named_parameters()}
    tensors = {}
    for name, tensor in heads.state_dict().items():
        full = whole(tensor.detach())
        if not keep:
            continue
        kept = full.to("cpu", dtype if name in parameters else tensor.dtype)
        tensors[disk_name(name, heads.config.kind)] = kept.clone().contiguous()
    return tensors


def disk_name(name: str, kind: str) -> str:
    """Name in code -> on disk: ``modules_by_depth.0.layer.self_attn...`` -> ``mtp.layers.0.self_attn...``."""
    if name == "draft_ids_V":
        return "mtp.draft_ids"
    if not name.startswith("modules_by_depth."):
        return f"mtp.{name}"
    _, index, part, rest = name.split(".", 3)
    parts = {"layer": "", "norm": "post_norm."}
    family = "heads" if kind == "medusa" else "layers"
    return f"mtp.{family}.{index}.{parts.get(part, part + '.')}{rest}"
