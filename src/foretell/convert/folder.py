"""A converted folder: written beside its place and moved there when it has been read back, or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from foretell.checkpoints.adapter import check_target as check_adapter
from foretell.checkpoints.adapter_config import CONFIG_FILE, TENSOR_FILE, read_adapter_config
from foretell.checkpoints.files import INDEX_FILE, check_folder, read_json, written_whole
from foretell.checkpoints.gguf import gguf_to_folder
from foretell.checkpoints.source import find_source
from foretell.checkpoints.stored import StoredModel
from foretell.convert.claims import MODELING_FILE
from foretell.convert.report import Conversion
from foretell.convert.shards import Plan, Progress, check_shards, write_shards
from foretell.errors import CheckpointError

RECORD_FILE = "conversion.json"
"""The report, in the folder itself; a folder that has one, and no file beside those it lists, may be overwritten."""

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".npz", ".ckpt")
_REPLACED = ("config.json", INDEX_FILE, CONFIG_FILE, TENSOR_FILE, RECORD_FILE, MODELING_FILE)
_TEMPLATES = "additional_chat_templates"
_SPARE_BYTES = 10**8


def model_folder(model: str | PathLike[str], on_progress: Progress | None = None) -> Path:
    """The folder that a user's name for a model means: itself, or what a GGUF file or "demo" was converted to."""
    found = find_source(model)
    if found.kind == "hub":
        raise CheckpointError(f"{model}: no such folder; to convert a model of the hub, download it first")
    if found.kind == "gguf":
        return gguf_to_folder(found.where, on_progress=lambda stage: on_progress and on_progress(stage, 0, 1))
    return Path(found.where)


def check_adapter_target(folder: str | PathLike[str], sources: list[Path], overwrite: bool) -> None:
    """Raise CheckpointError where no adapter may be written to ``folder``; only what a conversion wrote is replaced."""
    target = Path(folder).expanduser().resolve()
    if any(target == source.expanduser().resolve() for source in sources):
        raise CheckpointError(f"{target}: is the source; give another folder")
    check_adapter(target, overwrite)
    if target.exists() and any(target.iterdir()):
        training = read_adapter_config(target).training
        if not {"imported_from", "folded_from"} & training.keys():
            raise CheckpointError(f"{target}: holds heads that were trained, and is not touched; give another folder")


def check_target(folder: str | PathLike[str], sources: list[Path], overwrite: bool) -> Path:
    """The folder that ``folder`` means, links followed; raises CheckpointError where nothing may be written to it."""
    target = Path(folder).expanduser().resolve()
    for source in sources:
        if target == source.resolve() or source.resolve() in target.parents:
            raise CheckpointError(f"{target}: is the source {source}, or lies in it; give another folder")
        if target in source.resolve().parents:
            raise CheckpointError(f"{target}: the source {source} lies in it; give another folder")
    record = target / RECORD_FILE
    listed = read_json(record).get("files") if record.is_file() else None
    ours = {RECORD_FILE, *(name for name in listed if isinstance(name, str))} if isinstance(listed, list) else set()
    check_folder(target, "a model", ours.__contains__, overwrite)
    return target


def write_converted(
    source: StoredModel,
    folder: Path,
    plan: Plan,
    config: Mapping[str, Any],
    report: Conversion,
    *,
    added_bytes: int = 0,
    texts: Mapping[str, str] | None = None,
    check: Callable[[Path], None] | None = None,
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> None:
    """Write ``config``, the weights of ``plan``, the source's other files and ``texts``; fill in ``report``.

    ``folder``: as ``check_target`` gave it. What was written is read back, and handed to ``check``, before it appears.
    Raises CheckpointError, and leaves nothing then.
    """
    _check_room(source, folder, added_bytes)
    report.kept = [name for name in source.headers if name not in plan.dropped and name not in plan.changed]
    report.dropped |= plan.dropped
    with written_whole(folder) as fresh:
        (fresh / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        _copy_others(source, fresh, report)
        for name, text in (texts or {}).items():
            (fresh / name).write_text(text, encoding="utf-8")
        write_shards(source, plan, fresh, on_progress)
        result = StoredModel.open(fresh)
        check_shards(source, plan, result)
        report.account_for(source.headers, result.headers)
        count = len(result.files)
        report.checks.append(f"{len(result.headers):,} tensors in {count} file{'s' * (count != 1)}, read back")
        if check is not None:
            check(fresh)
        report.files = sorted({path.name for path in fresh.iterdir()} | {RECORD_FILE})
        (fresh / RECORD_FILE).write_text(json.dumps(report.as_dict(), indent=2) + "\n", encoding="utf-8")
        check_target(folder, [source.folder], overwrite)  # hours may have passed


def _copy_others(source: StoredModel, fresh: Path, report: Conversion) -> None:
    """Tokenizer, templates, licence and the like; weights in other formats are left out, with a note."""
    left = []
    for path in sorted(source.folder.iterdir()):
        if path.name in _REPLACED or path in source.files or path.name.startswith("."):
            continue
        if path.is_dir() and path.name == _TEMPLATES:
            shutil.copytree(path, fresh / path.name)
        elif path.is_file() and path.suffix not in _WEIGHTS and not path.name.endswith(".index.json"):
            shutil.copyfile(path, fresh / path.name)
        else:
            left.append(path.name)
    if left:
        report.notes.append(f"not copied from {source.folder.name}: {', '.join(left)}")


def _check_room(source: StoredModel, target: Path, added_bytes: int) -> None:
    parent = target.parent
    while not parent.exists():
        parent = parent.parent
    needed = sum(file.stat().st_size for file in source.files) + added_bytes + _SPARE_BYTES
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise CheckpointError(
            f"{target}: needs about {needed / 1e9:.1f} GB, its disk has {free / 1e9:.1f} GB free; make room, or give a "
            "folder on another disk"
        )
