"""Tiny folders with native MTP layers that sometimes guess right, announced as transformers wants it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.checkpoints.family_folders import LOADABLE, write_random
from tests.fixtures import build, byte_tokenizer, tiny_deepseek_v3, tiny_glm4_moe

FAMILIES = {"deepseek_v3": tiny_deepseek_v3, "glm4_moe": tiny_glm4_moe}
_NUM_LAYERS = 2
_WEAK = 0.05
PATTERNS = [*(rf"^model\.layers\.{_NUM_LAYERS + k}\." for k in range(8)), r"^mtp\."]
"""Which tensors are heads: what ``transformers_model`` tells transformers."""


def write_model(folder: Path, family: str, num_modules: int, seed: int, guesses: bool = False) -> Path:
    """A model of two layers and ``num_modules`` MTP layers in DeepSeek's layout, random from ``seed``.

    ``guesses``: layers so weak that a text hangs mostly on its newest token, and modules that hand that token on, so
    that drafts are accepted now and then at every depth. Without it a guess is right by chance alone.
    """
    config = FAMILIES[family](num_hidden_layers=_NUM_LAYERS + num_modules).config
    build(config, seed).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(seed)
    size = config.hidden_size
    for index in range(_NUM_LAYERS, _NUM_LAYERS + num_modules):
        for name in ("enorm", "hnorm", "shared_head.norm"):
            tensors[f"model.layers.{index}.{name}.weight"] = 1 + 0.1 * torch.randn(size, generator=generator)
        projection = (0.02 if guesses else 0.1) * torch.randn(size, 2 * size, generator=generator)
        if guesses:
            projection[:, :size] += torch.eye(size)
        tensors[f"model.layers.{index}.eh_proj.weight"] = projection
    for name, tensor in tensors.items():
        if guesses and name.endswith(("o_proj.weight", "down_proj.weight", "experts.down_proj")):
            tensor *= _WEAK
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    written = json.loads((folder / "config.json").read_text())
    written |= {"num_hidden_layers": _NUM_LAYERS, "num_nextn_predict_layers": num_modules}
    for name in ("mlp_layer_types", "layer_types"):
        if kinds := written.get(name):
            written[name], written[f"mtp_{name}"] = kinds[:_NUM_LAYERS], kinds[_NUM_LAYERS:]
    (folder / "config.json").write_text(json.dumps(written))
    return folder


def transformers_model(folder: Path) -> Any:
    """The folder as transformers loads it, told which layers are MTP layers.

    It knows them by the layer numbers of released checkpoints, which a tiny model does not share.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    model._keys_to_ignore_on_load_unexpected = PATTERNS
    return model


def write_layout(folder: Path, name: str, num_modules: int) -> Path:
    """A folder of tests/checkpoints/family_folders, with what transformers needs to know beside the family's claim."""
    write_random(LOADABLE[name], folder, num_modules, guesses=True)
    written = json.loads((folder / "config.json").read_text()) | {"num_mtp_layers": num_modules}
    for kinds in ("mlp_layer_types", "layer_types"):
        if written.get(kinds):
            written[f"mtp_{kinds}"] = written[kinds][-1:] * num_modules
    (folder / "config.json").write_text(json.dumps(written))
    return folder
