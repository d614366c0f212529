"""Writing weights shard by shard: untouched files are copied, others rewritten, added tensors flow into new ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file

from foretell.checkpoints.files import INDEX_FILE, TensorHeader, read_headers
from foretell.checkpoints.stored import StoredModel
from foretell.convert.raw import copy_kept, same_bytes
from foretell.errors import CheckpointError

SHARD_BYTES = 5 * 10**9
"""Added tensors are written out once they reach this, or the source's largest file; transformers' own default."""

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
    """Write the weights that ``plan`` makes of ``source`` into the empty ``folder``.

    Bytes that stay are copied a piece at a time; changed tensors are in memory one by one, added ones up to a shard.
    Files get transformers' names, and an index where there are several. Returns the weight files.
    """
    say = on_progress or (lambda stage, done, total: None)
    written: list[Path] = []

    def new_file() -> Path:
        written.append(folder / f"part-{len(written)}.safetensors")
        return written[-1]

    for number, (file, names) in enumerate(_by_file(source).items()):
        say("writing", number, len(source.files))
        kept = {name for name in names if name not in plan.dropped and name not in plan.changed}
        if len(kept) == len(names):
            shutil.copyfile(file, new_file())
        elif kept:
            copy_kept(file, new_file(), kept)
    waiting: dict[str, torch.Tensor] = {}
    size, limit = 0, min(SHARD_BYTES, max(file.stat().st_size for file in source.files))
    for name, tensor in _new(source, plan):
        waiting[name] = tensor.detach().cpu().contiguous()
        size += tensor.numel() * tensor.element_size()
        if size >= limit:
            save_file(waiting, new_file(), metadata={"format": "pt"})
            waiting, size = {}, 0
    if waiting:
        save_file(waiting, new_file(), metadata={"format": "pt"})
    for file in written:
        shutil.copymode(folder / "config.json", file)  # safetensors lets only the owner read
    say("writing", len(source.files), len(source.files))
    return _named(written, folder)


def check_shards(source: StoredModel, plan: Plan, result: StoredModel) -> None:
    """Compare what was written with what was meant: every tensor of a rewritten file byte for byte.

    Copied files are compared by their headers. Raises CheckpointError.
    """
    for file, names in _by_file(source).items():
        kept = [name for name in names if name not in plan.dropped and name not in plan.changed]
        wrong = next((name for name in kept if result.headers.get(name) != source.headers[name]), None)
        if wrong is None and kept and len(kept) < len(names):
            wrong = same_bytes(file, result.places[kept[0]], kept)
        if wrong is not None:
            raise CheckpointError(f"{result.folder}: {wrong} differs from {source.folder}")


def _by_file(source: StoredModel) -> dict[Path, list[str]]:
    found: dict[Path, list[str]] = {file: [] for file in source.files}
    for name, file in source.places.items():
        found[file].append(name)
    return found


def _new(source: StoredModel, plan: Plan) -> Iterator[tuple[str, torch.Tensor]]:
    """What is not in the source as it will be: changed tensors, then added ones."""
    for name, tensor in source.read(plan.changed):
        yield name, plan.changed[name](tensor)
    yield from plan.added


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
