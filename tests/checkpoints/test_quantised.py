"""Quantised trunks: heads beside them are plain, text stays the trunk's own, and settings that disagree are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torchao.quantization import Int8WeightOnlyConfig

import foretell
from foretell.checkpoints.adapter import save_adapter
from foretell.checkpoints.load import load_trunk
from foretell.convert.export import export
from foretell.convert.strip import strip
from foretell.errors import CheckpointError
from foretell.models.quantised import dense_weight, is_quantised
from tests.fixtures import byte_tokenizer, encode, random_heads, tiny_llama

METHODS: dict[str, Any] = {
    "torchao": transformers.TorchAoConfig(Int8WeightOnlyConfig()),
    "8 bit": transformers.BitsAndBytesConfig(load_in_8bit=True),
    "4 bit": transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float32),
}


@pytest.fixture(params=METHODS)
def folders(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """A plain trunk, and the same one quantised."""
    plain, quantised = tmp_path / "plain", tmp_path / "quantised"
    tiny_llama(intermediate_size=128).save_pretrained(plain)
    settings = METHODS[request.param]
    model = transformers.AutoModelForCausalLM.from_pretrained(plain, quantization_config=settings, dtype=torch.float32)
    model.save_pretrained(quantised)
    for folder in (plain, quantised):
        byte_tokenizer().save_pretrained(folder)
    return plain, quantised


def text(model: Any, depth: int) -> list[int]:
    """Greedy tokens."""
    return foretell.Engine(model).generate(["abcab"], foretell.SamplingParams(max_tokens=16), depth=depth)[0].token_ids


def test_a_plain_head_on_a_quantised_trunk(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """The text is the quantised trunk's own, and the head's tensors are those of the adapter."""
    plain, quantised = folders
    save_adapter(random_heads(load_trunk(plain)), tmp_path / "a")
    with pytest.warns(UserWarning, match="another trunk"):
        model = foretell.load(quantised, heads=tmp_path / "a")
    assert is_quantised(model.trunk.decoder.layers[0].self_attn.q_proj.weight)
    assert model.heads is not None and not any(is_quantised(weight) for weight in model.heads.parameters())
    ids = torch.tensor([encode("abcab")])
    own = transformers.AutoModelForCausalLM.from_pretrained(quantised)
    expected = own.generate(ids, max_new_tokens=16, do_sample=False)[0, 5:].tolist()
    assert text(model, 0) == text(model, 2) == expected


def test_fresh_heads_start_from_the_trunks_own_values(folders: tuple[Path, Path]) -> None:
    """Dequantised, near the values before quantisation, and trainable."""
    plain, quantised = (load_trunk(folder) for folder in folders)
    module = random_heads(quantised).modules_by_depth[0]
    assert all(parameter.is_floating_point() for parameter in module.parameters())
    before = plain.decoder.layers[1].mlp.up_proj.weight.float()
    after = dense_weight(quantised.decoder.layers[1].mlp.up_proj).float()
    assert (before - after).abs().max() < 0.2 * before.abs().max()


def test_exported_and_stripped(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """The head stays plain: the config's exceptions name it; without it every byte of the trunk is there again."""
    _, quantised = folders
    save_adapter(random_heads(load_trunk(quantised)), tmp_path / "a")
    export(quantised, tmp_path / "a", tmp_path / "out", "deepseek-style")
    settings = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert any("model.layers.2" in value for value in settings.values() if isinstance(value, list))
    model = foretell.load(tmp_path / "out")
    assert text(model, 0) == text(model, 1)
    strip(tmp_path / "out", tmp_path / "stripped")
    assert (tmp_path / "stripped" / "model.safetensors").read_bytes() == (quantised / "model.safetensors").read_bytes()


def test_quantised_files_without_a_word_in_the_config(folders: tuple[Path, Path]) -> None:
    """transformers would take the numbers as they are, or leave them out."""
    _, quantised = folders
    config = json.loads((quantised / "config.json").read_text())
    del config["quantization_config"]
    (quantised / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="config has no quantization_config; its weights would be read as noise"):
        load_trunk(quantised)


def test_a_config_that_speaks_of_quantised_files_beside_plain_ones(tmp_path: Path) -> None:
    model = tiny_llama()
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "fp8"}}))
    with pytest.raises(CheckpointError, match="config says fp8, but no matrix in the files is quantised"):
        load_trunk(tmp_path)


def test_a_rewritten_shard_keeps_the_notes_in_its_header(tmp_path: Path) -> None:
    """torchao says there what its tensors are."""
    model = tiny_llama()
    model.config.num_nextn_predict_layers = 1
    model.save_pretrained(tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    tensors = load_file(file) | {"model.layers.2.eh_proj.weight": torch.zeros(64, 128)}
    save_file(tensors, file, metadata={"format": "pt", "model.layers.0": "a note"})
    strip(tmp_path / "m", tmp_path / "plain")
    from safetensors import safe_open

    with safe_open(tmp_path / "plain" / "model.safetensors", "pt") as after:
        assert after.metadata() == {"format": "pt", "model.layers.0": "a note"}
