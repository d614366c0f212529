"""Files of heads with odd tensors, and configs beside them: refused by name, or not looked at."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import foretell
from foretell.convert.import_heads import import_heads
from foretell.errors import CheckpointError
from tests.checkpoints.family_folders import LOADABLE, finish, tiny_mellum, write_random, write_trunk
from tests.checkpoints.test_loose_heads import medusa_file, meta_weights
from tests.convert.models import read

LLAMA = LOADABLE["llama behind"]
ODD = {
    "int8": lambda tensor: tensor.to(torch.int8),
    "sparse_coo": lambda tensor: tensor.to_sparse(),
    "float8_e4m3fn": lambda tensor: tensor.to(torch.float8_e4m3fn),
    "complex64": lambda tensor: tensor.to(torch.complex64),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("family", ["medusa", "meta"])
def test_tensors_that_are_no_plain_numbers(kind: str, family: str, tmp_path: Path) -> None:
    write_trunk(LLAMA, tmp_path / "trunk")
    meta = {f"extra_heads.0.{name}": tensor for name, tensor in meta_weights(0).items()}
    saved: dict[str, torch.Tensor] = medusa_file(1, 1) if family == "medusa" else meta
    name = "0.0.linear.weight" if family == "medusa" else "extra_heads.0.attention.wv.weight"
    torch.save(saved | {name: ODD[kind](saved[name])}, tmp_path / "medusa_lm_head.pt")
    with pytest.raises(CheckpointError, match=rf"these tensors are not: {name} \({kind}\)"):
        import_heads(tmp_path / "medusa_lm_head.pt", tmp_path / "out", tmp_path / "trunk")


def test_a_number_is_no_count(tmp_path: Path) -> None:
    """Nothing is built for a hundred million heads that one name announces."""
    write_trunk(LLAMA, tmp_path / "trunk")
    saved = {name.replace("0.", "99999999.", 1): tensor for name, tensor in medusa_file(1, 1).items()}
    torch.save(saved, tmp_path / "medusa_lm_head.pt")
    with pytest.raises(CheckpointError, match="names count 100000000 heads of 1 blocks, in 3 tensors"):
        import_heads(tmp_path / "medusa_lm_head.pt", tmp_path / "out", tmp_path / "trunk")


@pytest.mark.parametrize("text", ["[1, 2]", "{", '{"layer_types": 3}'])
def test_a_config_that_is_not_needed_is_not_read(text: str, tmp_path: Path) -> None:
    """Medusa's heads have no layers, and all of Llama's are of one kind."""
    folder = write_random(LLAMA, tmp_path / "trunk")
    (tmp_path / "medusa").mkdir()
    (tmp_path / "medusa" / "config.json").write_text(text)
    torch.save(medusa_file(1, 1), tmp_path / "medusa" / "medusa_lm_head.pt")
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / "config.json").write_text(text)
    tensors = read(folder)
    heads = {name: tensor for name, tensor in tensors.items() if name.startswith("model.layers.2.")}
    save_file(heads, tmp_path / "loose" / "model.safetensors")
    finish(folder, {name: tensor for name, tensor in tensors.items() if name not in heads}, num_mtp_layers=0)
    for loose in ("medusa", "loose"):
        import_heads(tmp_path / loose, tmp_path / f"{loose}-adapter", folder)


@pytest.mark.parametrize(
    ("num_layers", "kind"), [(2, "full_attention"), (3, "sliding_attention"), (None, "sliding_attention")]
)
def test_kinds_behind_the_layers_of_another_trunk(num_layers: int | None, kind: str, tmp_path: Path) -> None:
    """A list that was written for three layers says nothing of what lies behind two; Mellum's default holds."""
    kinds = ["sliding_attention", "full_attention"]
    folder = write_random(replace(LOADABLE["mellum"], make=partial(tiny_mellum, layer_types=kinds)), tmp_path / "m")
    tensors = read(folder)
    (tmp_path / "heads").mkdir()
    save_file({n: t for n, t in tensors.items() if n.startswith("mtp.")}, tmp_path / "heads" / "model.safetensors")
    beside: dict[str, Any] = {"layer_types": [*kinds, "full_attention"]}
    beside |= {} if num_layers is None else {"num_hidden_layers": num_layers}
    (tmp_path / "heads" / "config.json").write_text(json.dumps(beside))
    finish(folder, {n: t for n, t in tensors.items() if not n.startswith("mtp.")}, num_nextn_predict_layers=0)
    import_heads(tmp_path / "heads", tmp_path / "adapter", folder)
    heads = foretell.load(folder, heads=tmp_path / "adapter", pack=False).heads
    assert heads is not None and heads.layer_kinds == [kind]
