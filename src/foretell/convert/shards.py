"""Writing weights shard by shard: untouched files are copied, others rewritten, added tensors flow into new ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file

from foretell.checkpoints.files import INDEX_FILE, TensorHeader, read_headers, read_metadata
from foretell.checkpoints.stored import StoredModel
from foretell.errors import CheckpointError

SHARD_BYTES = 5 * 10**9
"""Added tensors are written out once they reach this; transformers' own default."""

Change = Callable[[torch.Tensor], torch.Tensor]
Progress = Callable[[str, int, int], None]
"""(stage, files done, files in all)."""


@dataclass
class Plan:
    """What becomes of a source's tensors: those in neither are kept. ``added`` is read lazily, once."""

    dropped: Mapping[str, str] = field(default_factory=dict)
    changed: dict[str, Change] = field(default_factory=dict)
    added: Iterable[tuple[str, torch.Tensor]] = ()


def write_shards(source: StoredModel, plan: Plan, folder: Path, on_progress: Progress | None = None) -> list[Path]:
    """Write the weights that ``plan`` makes of ``source`` into the empty ``folder``; at most a shard is in memory.

    Files get transformers' names, and an index where there are several. Returns the weight files.
    """
    say = on_progress or (lambda stage, done, total: None)
    written: list[Path] = []

    def new_file() -> Path:
        written.append(folder / f"part-{len(written)}.safetensors")
        return written[-1]

    for number, file in enumerate(source.files):
        say("writing", number, len(source.files))
        names = [name for name, place in source.places.items() if place == file]
        kept = [name for name in names if name not in plan.dropped]
        if len(kept) == len(names) and not plan.changed.keys() & set(names):
            shutil.copyfile(file, new_file())
        elif kept:
            tensors = {name: _changed(plan, name, tensor) for name, tensor in source.read(kept)}
            _save(tensors, new_file(), read_metadata(file))
    waiting: dict[str, torch.Tensor] = {}
    size = 0
    for name, tensor in plan.added:
        waiting[name] = tensor.detach().cpu().contiguous()
        size += tensor.numel() * tensor.element_size()
        if size >= SHARD_BYTES:
            _save(waiting, new_file())
            waiting, size = {}, 0
    if waiting:
        _save(waiting, new_file())
    say("writing", len(source.files), len(source.files))
    return _named(written, folder)


def check_shards(source: StoredModel, plan: Plan, result: StoredModel) -> None:
    """Compare what was written with what was meant: every kept tensor of a rewritten file bit for bit.

    Copied files are compared by their headers and size. Raises CheckpointError.
    """
    for name, header in source.headers.items():
        if name in plan.dropped:
            continue
        if name not in plan.changed and result.headers.get(name) != header:
            raise CheckpointError(f"{result.folder}: {name} was not written as it is in {source.folder}")
    rewritten = [
        name
        for name, place in source.places.items()
        if name not in plan.dropped and name not in plan.changed and _was_rewritten(source, plan, place)
    ]
    theirs = result.read(rewritten)
    for (name, tensor), (other, copy) in zip(source.read(rewritten), theirs, strict=True):
        if name != other or not _same_bits(tensor, copy):
            raise CheckpointError(f"{result.folder}: {name} differs from {source.folder}")


def _was_rewritten(source: StoredModel, plan: Plan, file: Path) -> bool:
    touched = plan.dropped.keys() | plan.changed.keys()
    return any(name in touched for name, place in source.places.items() if place == file)


def _same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    return torch.equal(first.contiguous().view(torch.uint8), second.contiguous().view(torch.uint8))


def _changed(plan: Plan, name: str, tensor: torch.Tensor) -> torch.Tensor:
    return plan.changed[name](tensor).contiguous() if name in plan.changed else tensor


def _save(tensors: dict[str, torch.Tensor], file: Path, metadata: Mapping[str, str] | None = None) -> None:
    save_file(tensors, file, metadata={"format": "pt"} | dict(metadata or {}))
    file.chmod(0o644)  # safetensors lets only the owner read


def _named(written: list[Path], folder: Path) -> list[Path]:
    """Give the files their names, and write the index where there are several."""
    total = len(written)
    if not total:
        raise CheckpointError(f"{folder}: no tensor would be left")
    if total == 1:
        return [written[0].rename(folder / "model.safetensors")]
    files = [
        file.rename(folder / f"model-{number:05d}-of-{total:05d}.safetensors")
        for number, file in enumerate(written, start=1)
    ]
    weight_map: dict[str, str] = {}
    size = 0
    for file in files:
        headers: dict[str, TensorHeader] = read_headers(file)
        weight_map |= dict.fromkeys(headers, file.name)
        size += sum(header.num_bytes for header in headers.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return files
