"""Open a folder for inspection: as any model folder, but also heads that came without a config; shards all there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from foretell.checkpoints.adapter_config import TENSOR_FILE
from foretell.checkpoints.files import INDEX_FILE, TensorHeader, read_headers, read_json
from foretell.checkpoints.stored import StoredModel
from foretell.errors import CheckpointError
from foretell.inspection.costs import embedding_of

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d+)-of-(?P<count>\d+)\.safetensors")
_SHOWN = 5


def open_folder(folder: Path) -> StoredModel:
    """Config and headers of ``folder``; heads alone may come without a config, or as mtp.safetensors."""
    _refuse_missing(folder)
    has_config, has_index = ((folder / name).is_file() for name in ("config.json", INDEX_FILE))
    files = sorted(folder.glob("*.safetensors"))
    if has_config and (has_index or [file.name for file in files] != [TENSOR_FILE]):
        return StoredModel.open(folder)
    config = read_json(folder / "config.json") if has_config else {}
    headers: dict[str, TensorHeader] = {}
    places: dict[str, Path] = {}
    for file in files:
        found = read_headers(file)
        headers |= found
        places |= dict.fromkeys(found, file)
    stored = StoredModel(folder, config, files, headers, places)
    if not has_config and embedding_of(headers):
        raise CheckpointError(f"{folder}: no config.json in it; expected a model folder as save_pretrained writes it")
    return stored


def _refuse_missing(folder: Path) -> None:
    """Raise CheckpointError naming shards that the index, or their own numbers, say should be there."""
    if (folder / INDEX_FILE).is_file():
        named = read_json(folder / INDEX_FILE).get("weight_map")
        wanted = set(filter(_is_safe, named.values())) if isinstance(named, dict) else set()
        why = f"{INDEX_FILE} names {{}} files"
    else:
        shards = [found for file in folder.glob("*.safetensors") if (found := _SHARD.fullmatch(file.name))]
        wanted = {
            f"{one['stem']}-{number:0{len(one['number'])}}-of-{one['count']}.safetensors"
            for one in shards
            for number in range(1, min(int(one["count"]), 100_000) + 1)
        }
        why = "their names count {} files"
    if missing := sorted(name for name in wanted if not (folder / name).is_file()):
        shown = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
        raise CheckpointError(
            f"{folder}: no such file: {shown} ({len(missing)} missing; {why.format(len(wanted))}); fetch them again"
        )


def _is_safe(name: Any) -> bool:
    """True for a file of the folder itself; others are refused when the index is read."""
    return isinstance(name, str) and "/" not in name and "\\" not in name
