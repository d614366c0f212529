"""Native MTP layers on tiny models: read as transformers reads them, trained further, kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.modeling_layers import MtpModel

import foretell
from foretell.checkpoints.load import load_trunk
from foretell.checkpoints.native_heads import load_native_heads
from foretell.errors import CheckpointError
from foretell.models.trunk import Trunk
from foretell.training.recipe_file import load_recipe
from foretell.training.trainer import train
from tests.fixtures import byte_tokenizer, tiny_deepseek_v3, tiny_glm4_moe

FAMILIES = {"deepseek_v3": tiny_deepseek_v3, "glm4_moe": tiny_glm4_moe}


def write(folder: Path, make: Any) -> None:
    """A model of two layers with one MTP layer in DeepSeek's layout: the third layer of a donor, and its four parts."""
    make(num_hidden_layers=3).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    size = tensors["model.norm.weight"].shape[0]
    generator = torch.Generator().manual_seed(1)
    for name in ("enorm", "hnorm", "shared_head.norm"):
        tensors[f"model.layers.2.{name}.weight"] = 1 + 0.1 * torch.randn(size, generator=generator)
    tensors["model.layers.2.eh_proj.weight"] = 0.1 * torch.randn(size, 2 * size, generator=generator)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_hidden_layers": 2, "num_nextn_predict_layers": 1}
    for name in ("mlp_layer_types", "layer_types"):
        if config.get(name):
            config[name] = config[name][:2]
            config[f"mtp_{name}"] = config[name][-1:]
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture(params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write(tmp_path / "model", FAMILIES[request.param])
    return tmp_path / "model"


def test_states_are_those_of_transformers(folder: Path) -> None:
    """One layer, run as transformers runs it: mask, rotary embedding and all."""
    trunk = load_trunk(folder)
    heads = load_native_heads(trunk)
    trunk.model._keys_to_ignore_on_load_unexpected = [r"model\.layers\.2\."]
    theirs = MtpModel.from_pretrained(trunk.model).eval()
    ids = torch.randint(0, 256, (1, 12))
    doc_ids = torch.zeros_like(ids)
    states = trunk.text_states(ids, doc_ids)
    [ours_BTD] = heads.training_states(states, trunk.embed(ids), doc_ids)
    positions = torch.arange(11)[None]
    mask = torch.ones(11, 11, dtype=torch.bool).tril()[None, None]
    expected_BTD = theirs.layers[0](
        trunk.embed(ids[:, 1:]),
        states.post_BTD[:, :-1],
        position_embeddings=theirs.rotary_emb(states.post_BTD, positions),
        attention_mask=mask,
        position_ids=positions,
        cache=None,
    )
    torch.testing.assert_close(ours_BTD[:, :11], expected_BTD, rtol=1e-4, atol=1e-5)


def test_loaded_and_lossless(folder: Path) -> None:
    """``load`` finds them, and they decode."""
    model = foretell.load(folder)
    assert model.heads is not None and model.heads.config.max_depth == 1
    engine = foretell.Engine(model)
    texts = [engine.generate(["abc"], foretell.SamplingParams(max_tokens=20), depth=depth)[0] for depth in (0, 1)]
    assert texts[0].token_ids == texts[1].token_ids and texts[1].stats.num_draft_tokens > 0


@pytest.mark.parametrize("change", ["missing", "misshapen"])
def test_damaged_heads_are_refused_by_name(folder: Path, change: str) -> None:
    """C11: never a silent start with noise."""
    tensors = load_file(folder / "model.safetensors")
    if change == "missing":
        del tensors["model.layers.2.eh_proj.weight"]
    else:
        tensors["model.layers.2.eh_proj.weight"] = torch.zeros(4, 4)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="eh_proj"):
        load_native_heads(load_trunk(folder))


def test_trained_together_and_kept(folder: Path, tmp_path: Path) -> None:
    """C10: a joint run goes on with the native heads; without a rate it writes back what it read."""
    (tmp_path / "text.txt").write_text("some words to learn, and some more of them to hold out\n" * 20)
    (tmp_path / "recipe.toml").write_text(
        f'trunk = "{folder}"\ninit_from = "native"\noutput = "{tmp_path}/out"\nrun_dir = "{tmp_path}/run"\n'
        f'[data]\nfiles = ["{tmp_path}/text.txt"]\nmax_length = 32\n'
        '[train]\ntrunk = "joint"\nmax_steps = 1\nbatch_rows = 2\nprecision = "float32"\n'
    )
    train(load_recipe(tmp_path / "recipe.toml"))
    before = load_native_heads(load_trunk(folder))
    after = foretell.load(tmp_path / "out", pack=False).heads
    assert after is not None and after.config == before.config
    names = [name for name, _ in before.named_parameters()]
    assert names == [name for name, _ in after.named_parameters()]
    assert torch.equal(*(h.state_dict()["modules_by_depth.0.eh_proj.weight"] for h in (before, after)))
    assert isinstance(after.trunk, Trunk)
