"""What the layers of native heads look at: as a config says, as the family has it, or in doubt with a word."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import foretell
from foretell.checkpoints.files import CheckpointWarning
from foretell.checkpoints.load import load_trunk
from foretell.checkpoints.native_heads import load_native_heads
from foretell.convert.import_heads import import_heads
from foretell.errors import CheckpointError
from tests.checkpoints.family_folders import LOADABLE, Stored, finish, tiny_exaone_moe, tiny_mellum, write_random


@pytest.mark.parametrize(("kind", "block_layer"), [("sliding_attention", 0), ("full_attention", -1)])
def test_layers_that_differ_in_kind_alone(kind: str, block_layer: int, tmp_path: Path) -> None:
    """Mellum says of its heads' layer what it looks at; the tensors say nothing of it."""
    stored = replace(LOADABLE["mellum"], make=partial(tiny_mellum, layer_types=["sliding_attention", "full_attention"]))
    folder = write_random(stored, tmp_path, claim={"mtp_layer_types": [kind], "mtp_mlp_layer_types": ["sparse"]})
    heads = load_native_heads(load_trunk(folder))
    assert (heads.config.block_layer, heads.layer_kinds) == (block_layer, [kind])


def of_two_kinds(name: str, make: Any, **kinds: Any) -> Stored:
    """A trunk whose two layers differ in kind alone."""
    kinds = {"layer_types": ["sliding_attention", "full_attention"]} | kinds
    return replace(LOADABLE[name], make=partial(make, **kinds))


@pytest.mark.parametrize("beside", ["nothing", "a claim", "a kind"])
def test_a_kind_that_no_config_says(beside: str, tmp_path: Path) -> None:
    """Mellum's default is sliding attention; heads alone are built as their trunk's, or as the config beside says."""
    folder = write_random(of_two_kinds("mellum", tiny_mellum), tmp_path / "model")
    assert load_native_heads(load_trunk(folder)).layer_kinds == ["sliding_attention"]
    tensors = load_file(folder / "model.safetensors")
    (tmp_path / "heads").mkdir()
    save_file({n: t for n, t in tensors.items() if n.startswith("mtp.")}, tmp_path / "heads" / "model.safetensors")
    if beside == "a kind":
        (tmp_path / "heads" / "config.json").write_text(json.dumps({"mtp_layer_types": ["full_attention"]}))
    claim = {"num_nextn_predict_layers": int(beside == "a claim")}
    finish(folder, {n: t for n, t in tensors.items() if not n.startswith("mtp.")}, **claim)
    import_heads(tmp_path / "heads", tmp_path / "adapter", folder)
    heads = foretell.load(folder, heads=tmp_path / "adapter", pack=False).heads
    assert heads is not None
    assert heads.layer_kinds == ["full_attention" if beside == "a kind" else "sliding_attention"]


def test_the_family_says_the_kind(tmp_path: Path) -> None:
    """MiMo-V2's heads slide: lost sinks are missed by name, and do not turn them into full attention."""
    folder = write_random(LOADABLE["mimo_v2"], tmp_path)
    tensors = load_file(folder / "model.safetensors")
    name = "model.mtp.layers.0.self_attn.attention_sink_bias"
    finish(folder, {key: tensor for key, tensor in tensors.items() if key != name})
    with pytest.raises(CheckpointError, match=f"heads; 1 missing: {name}. Nothing"):
        load_native_heads(load_trunk(folder))


def test_a_kind_that_nobody_knows_is_said(tmp_path: Path) -> None:
    """EXAONE's tensors fit both of its kinds, and its config says none."""
    stored = of_two_kinds("exaone_moe", tiny_exaone_moe, sliding_window=8)
    trunk = load_trunk(write_random(stored, tmp_path / "a"))
    said = "built as full_attention. .*: write mtp_layer_types into config.json"
    with pytest.warns(CheckpointWarning, match=said):
        assert load_native_heads(trunk).layer_kinds == ["full_attention"]
    known = write_random(stored, tmp_path / "b", claim={"mtp_layer_types": ["full_attention"]})
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckpointWarning)
        load_native_heads(load_trunk(known))


def test_a_kind_that_the_trunk_has_not_is_refused(tmp_path: Path) -> None:
    folder = write_random(LOADABLE["step3p5"], tmp_path, claim={"mtp_layer_types": ["linear_attention"]})
    with pytest.raises(CheckpointError, match="announced as linear_attention, and the trunk has no such layer"):
        load_native_heads(load_trunk(folder))


def test_layers_of_several_kinds_are_refused(tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention"]
    folder = write_random(LOADABLE["step3p5"], tmp_path, 2, claim={"mtp_layer_types": kinds})
    with pytest.raises(CheckpointError, match=r"of several kinds \(sliding_attention, full_attention\)"):
        load_native_heads(load_trunk(folder))
