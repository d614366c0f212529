"""Tiny model folders to convert, and what conversions need to be compared by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.fixtures import byte_tokenizer, tiny_deepseek_v3


def write(model: Any, folder: Path, **kw: Any) -> Path:
    """A model folder with a tokenizer."""
    model.save_pretrained(folder, **kw)
    byte_tokenizer().save_pretrained(folder)
    return folder


def with_heads(folder: Path, num_shards: int = 1) -> Path:
    """A DeepSeek-V3 of two layers with a native MTP layer, its copies of embedding and output head included.

    Names are written by hand, as the released checkpoint has them.
    """
    donor = tiny_deepseek_v3(num_hidden_layers=3)
    donor.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(1)
    tensors |= {
        f"model.layers.2.{name}.weight": 1 + 0.1 * torch.randn(64, generator=generator)
        for name in ("enorm", "hnorm", "shared_head.norm")
    }
    tensors["model.layers.2.eh_proj.weight"] = 0.1 * torch.randn(64, 128, generator=generator)
    tensors["model.layers.2.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors["model.layers.2.shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    (folder / "model.safetensors").unlink()
    write_shards(folder, tensors, num_shards)
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_hidden_layers": 2, "num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_shards(folder: Path, tensors: dict[str, torch.Tensor], num_shards: int) -> None:
    """``tensors`` in so many files, with an index where there are several."""
    if num_shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(tensors)
    weight_map = {}
    for shard in range(num_shards):
        file = f"model-{shard + 1:05d}-of-{num_shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[shard::num_shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def read(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a folder."""
    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    return found


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Same names, types and bits."""
    return first.keys() == second.keys() and all(
        first[name].dtype == second[name].dtype and torch.equal(first[name], second[name]) for name in first
    )


def config_of(folder: Path) -> dict[str, Any]:
    """The config as it is stored."""
    values: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return values
