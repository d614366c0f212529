"""Plain heads on a quantised trunk: the config leaves every one of their matrices out, by names that engines find."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from foretell.checkpoints.adapter import save_adapter
from foretell.checkpoints.load import load_trunk
from foretell.convert.export import export
from foretell.convert.graft import graft
from foretell.inspection.inspect import inspect_checkpoint
from tests.convert.models import config_of, read, write
from tests.fixtures import random_heads, tiny_deepseek_v3

KEYS = {"fp8": "modules_to_not_convert", "compressed-tensors": "ignore"}


def quantised(trunk: Path, method: str) -> Path:
    """``trunk`` with the matrices of its layers in eight bits, as ``method`` says."""
    tensors = read(trunk)
    for name in [name for name in tensors if "_proj.weight" in name]:
        tensors[name] = tensors[name].to(torch.float8_e4m3fn)
        tensors[name.replace("weight", "weight_scale_inv")] = torch.ones(1, 1)
    save_file(tensors, trunk / "model.safetensors", metadata={"format": "pt"})
    settings: dict[str, Any] = {"quant_method": method, "fmt": "e4m3", KEYS[method]: ["lm_head"]}
    (trunk / "config.json").write_text(json.dumps(config_of(trunk) | {"quantization_config": settings}))
    return trunk


@pytest.mark.parametrize("method", KEYS)
def test_every_matrix_is_named_whole(method: str, tmp_path: Path) -> None:
    """vLLM compares a matrix' whole name for both; a name around it, as model.layers.2, would leave nothing out."""
    trunk = write(tiny_deepseek_v3(), tmp_path / "t")
    save_adapter(random_heads(load_trunk(trunk)), tmp_path / "a", dtype=torch.float32)
    quantised(trunk, method)
    export(trunk, tmp_path / "a", tmp_path / "out", "native", reload=False)
    heads = {name: t for name, t in read(tmp_path / "out").items() if name.startswith("model.layers.2.")}
    matrices = {name.removesuffix(".weight") for name, tensor in heads.items() if tensor.dim() > 1}
    assert "model.layers.2.mlp.experts.3.up_proj" in matrices and "model.layers.2.shared_head.head" in matrices
    named = config_of(tmp_path / "out")["quantization_config"][KEYS[method]]
    assert sorted(named) == sorted({"lm_head", *matrices})
    assert inspect_checkpoint(tmp_path / "out").problems == []
    graft(trunk, tmp_path / "out", tmp_path / "again", reload=False)
    assert sorted(config_of(tmp_path / "again")["quantization_config"][KEYS[method]]) == sorted(named)


def test_heads_of_a_model_with_images_are_named_as_they_are_stored(tmp_path: Path) -> None:
    """Its language model lies one name deeper, as GLM-OCR's does."""
    trunk = write(tiny_deepseek_v3(), tmp_path / "t")
    save_adapter(random_heads(load_trunk(trunk)), tmp_path / "a")
    quantised(trunk, "fp8")
    export(trunk, tmp_path / "a", tmp_path / "m", "native", reload=False)
    for folder in (trunk, tmp_path / "m"):
        nested = {name.replace("model.", "model.language_model.", 1): t for name, t in read(folder).items()}
        save_file(nested, folder / "model.safetensors", metadata={"format": "pt"})
    for file in (tmp_path / "m").glob("model-*"):
        file.unlink()
    (tmp_path / "m" / "model.safetensors.index.json").unlink(missing_ok=True)
    graft(trunk, tmp_path / "m", tmp_path / "out", reload=False)
    named = config_of(tmp_path / "out")["quantization_config"]["modules_to_not_convert"]
    assert "model.language_model.layers.2.self_attn.o_proj" in named
    assert all(name == "lm_head" or name.startswith("model.language_model.layers.2.") for name in named)
