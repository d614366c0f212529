"""What a checkpoint holds, read from configs and file headers alone; no tensor is loaded, torch is not imported."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from foretell.checkpoints.adapter_config import TENSOR_FILE, is_adapter
from foretell.checkpoints.families import ENGINES
from foretell.checkpoints.files import read_json
from foretell.checkpoints.source import DEMO, find_source
from foretell.errors import CheckpointError
from foretell.inspection.adapter import inspect_adapter
from foretell.inspection.costs import experts_of
from foretell.inspection.gguf import inspect_gguf
from foretell.inspection.inspection import Inspection
from foretell.inspection.medusa import inspect_medusa, medusa_file
from foretell.inspection.model import inspect_folder

__all__ = ["Inspection", "inspect_checkpoint"]


def inspect_checkpoint(path: str | PathLike[str]) -> Inspection:
    """Inspect a model folder, an adapter, heads alone, a GGUF file or "demo". Raises CheckpointError."""
    target = Path(path).expanduser()
    if path != DEMO:
        if target.is_dir() and (found := _folder(target)):
            return found
        if target.is_file() and (file := medusa_file(target)):
            return inspect_medusa(file)
    source = find_source(path)
    if source.kind == "hub":
        raise CheckpointError(f"{path}: no such file or folder; only local checkpoints can be inspected")
    where = Path(source.where)
    return inspect_folder(where) if source.kind == "folder" else inspect_gguf(where)


def _folder(folder: Path) -> Inspection | None:
    """A trunk, heads, or both; None where the folder is for ``find_source`` to refuse."""
    weights = [file for file in folder.glob("*.safetensors") if file.name != TENSOR_FILE]
    if is_adapter(folder):
        if not weights or not (folder / "config.json").is_file():
            return inspect_adapter(folder)
        found = inspect_folder(folder)
        config = read_json(folder / "config.json")
        found.adapter = inspect_adapter(folder, found.costs.trunk if found.costs else None, experts_of(config))
        if not found.mtp_tensors:
            found.engines = dict.fromkeys(ENGINES, "runs the trunk, does not see the adapter beside it")
        return found
    if not weights and (file := medusa_file(folder)):
        return inspect_medusa(file)
    if (folder / "config.json").is_file() or any(folder.glob("*.safetensors")):
        return inspect_folder(folder)
    return None
