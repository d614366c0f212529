"""Exports of heads whose layer is not the one that engines build, and of a trunk whose embedding has another name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from foretell.checkpoints.adapter import save_adapter
from foretell.checkpoints.load import load_trunk
from foretell.convert.export import export
from foretell.convert.import_heads import import_heads
from foretell.convert.strip import strip
from foretell.errors import CheckpointError
from tests.checkpoints.family_folders import LOADABLE, tiny_ernie4_5_moe, tiny_glm4_moe_lite, write_random
from tests.convert.models import config_of, read, same, write
from tests.fixtures import random_heads, tiny_deepseek_v3, tiny_glm4_moe

ERNIE: dict[str, Any] = {"final_norm": "none", "zero_first": True}


def adapter(folder: Path, trunk: Path, **config: Any) -> Path:
    """Random heads of one depth."""
    save_adapter(random_heads(load_trunk(trunk), num_depths=1, **config), folder)
    return folder


@pytest.mark.parametrize(
    ("make", "to"),
    [
        (tiny_glm4_moe, "native"),
        (tiny_glm4_moe, "deepseek-style"),
        (tiny_deepseek_v3, "native"),
        (tiny_glm4_moe_lite, "native"),
    ],
)
def test_dense_heads_where_engines_build_experts(make: Callable[[], Any], to: str, tmp_path: Path) -> None:
    trunk = write(make(), tmp_path / "t")
    heads = adapter(tmp_path / "a", trunk, block_layer=0)
    with pytest.raises(CheckpointError, match=r"MLP of layer 0, and engines build .* layer 1 .* without block_layer"):
        export(trunk, heads, tmp_path / "out", to)
    assert not (tmp_path / "out").exists()


def test_dense_heads_where_the_config_says_so(tmp_path: Path) -> None:
    """transformers reads mtp_mlp_layer_types, which the classes for released models do not."""
    trunk = write(tiny_glm4_moe_lite(), tmp_path / "t")
    export(trunk, adapter(tmp_path / "a", trunk, block_layer=0), tmp_path / "out", "deepseek-style")
    assert config_of(tmp_path / "out")["mtp_mlp_layer_types"] == ["dense"]


def test_ernies_own_module_is_dense(tmp_path: Path) -> None:
    """vLLM builds a plain Llama layer for it, whatever the trunk's last layer has."""
    trunk = write(tiny_ernie4_5_moe(), tmp_path / "t")
    with pytest.raises(CheckpointError, match="MLP of layer 1, .* with block_layer = 0"):
        export(trunk, adapter(tmp_path / "a", trunk, **ERNIE), tmp_path / "out", "native")
    export(trunk, adapter(tmp_path / "b", trunk, **ERNIE, block_layer=0), tmp_path / "out", "native")


def test_lings_embedding_has_another_name(tmp_path: Path) -> None:
    """word_embeddings in the files, embed_tokens in memory: the module's copy repeats the one that is stored."""
    original = write_random(LOADABLE["bailing_hybrid"], tmp_path / "m")
    import_heads(original, tmp_path / "a")
    strip(original, tmp_path / "plain")
    report = export(tmp_path / "plain", tmp_path / "a", tmp_path / "out", "native")
    before, after = read(original), read(tmp_path / "out")
    copy = after.pop("model.layers.2.embed_tokens.weight")
    assert same(after, before) and torch.equal(copy, before["model.word_embeddings.weight"])
    assert "copy of model.word_embeddings.weight" in report.added["model.layers.2.embed_tokens.weight"]
