"""Settings that have one value a layer, and go on for the heads: Step-3.5's config as it is published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from foretell.checkpoints.adapter import save_adapter
from foretell.checkpoints.files import CheckpointWarning
from foretell.checkpoints.layer_settings import padded
from foretell.checkpoints.load import load_trunk
from foretell.checkpoints.native_heads import load_native_heads
from foretell.convert.export import export
from foretell.convert.graft import graft
from foretell.convert.strip import strip
from tests.checkpoints.family_folders import LOADABLE, write_random
from tests.fixtures import random_heads

LENGTH = 16

PUBLISHED = {
    "architectures": ["Step3p5ForCausalLM"],
    "model_type": "step3p5",
    "auto_map": {"AutoModelForCausalLM": "modeling_step3p5.Step3p5ForCausalLM"},
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_nextn_predict_layers": 3,
    "num_attention_heads": 4,
    "num_attention_groups": 2,
    "head_dim": 16,
    "vocab_size": 260,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"] * 3,
    "attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": 6, "head_dim": 16},
    "moe_layers_enum": "2,3",
    "moe_num_experts": 4,
    "moe_top_k": 2,
    "moe_intermediate_size": 32,
    "share_expert_dim": 32,
    "swiglu_limits": [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
    "swiglu_limits_shared": [0.0] * 7,
    "rope_theta": [1e4, 5e5, 1e4, 5e5, 1e4, 1e4, 1e4],
    "partial_rotary_factors": [1.0, 0.5, 1.0, 0.5, 1.0, 1.0, 1.0],
    "use_rope_layers": [True] * 7,
    "tie_word_embeddings": False,
    "eos_token_id": 256,
    "pad_token_id": 257,
    "dtype": "float32",
}
"""Step-3.5-Flash's config.json, its keys and lists padded for the heads, in small sizes."""


def test_settings_as_step_publishes_them(tmp_path: Path) -> None:
    """The same states as with the settings that transformers writes; code that the folder names is not run."""
    plain = write_random(LOADABLE["step3p5"], tmp_path / "a", 3)
    first, second = (load_trunk(folder) for folder in (plain, published_step(tmp_path / "b")))
    ids = torch.arange(1, 1 + LENGTH)[None]
    doc_ids = torch.zeros_like(ids)
    theirs, ours = (
        load_native_heads(trunk).training_states(trunk.text_states(ids, doc_ids), trunk.embed(ids), doc_ids)
        for trunk in (first, second)
    )
    assert all(torch.equal(a, b) for a, b in zip(theirs, ours, strict=True)) and len(ours) == 3


BY_LAYER = [key for key, values in PUBLISHED.items() if isinstance(values, list) and len(values) == 7]


def published_step(folder: Path, **changed: Any) -> Path:
    """Three modules, and the config as it is published, but for what is ``changed``."""
    write_random(LOADABLE["step3p5"], folder, 3)
    (folder / "config.json").write_text(json.dumps(PUBLISHED | changed))
    return folder


def test_settings_by_layer_go_on_for_the_heads(tmp_path: Path) -> None:
    """Stripped of their ends, which a graft and an export write again: engines look at them behind the trunk's last."""
    folder = published_step(tmp_path / "model")
    strip(folder, tmp_path / "plain")
    plain = json.loads((tmp_path / "plain" / "config.json").read_text())
    assert len(BY_LAYER) == 6 and all(plain[key] == PUBLISHED[key][:4] for key in BY_LAYER)
    graft(tmp_path / "plain", folder, tmp_path / "grafted", reload=False)
    shared = random_heads(
        load_trunk(tmp_path / "plain"),
        num_modules=3,
        hidden_source="pre",
        feedback="raw",
        block_layer=0,
    )
    save_adapter(shared, tmp_path / "adapter")
    export(tmp_path / "plain", tmp_path / "adapter", tmp_path / "exported", to="native")
    for name in ("grafted", "exported"):
        config = json.loads((tmp_path / name / "config.json").read_text())
        assert {key: config[key] for key in BY_LAYER} == {key: PUBLISHED[key] for key in BY_LAYER}
    heads = load_native_heads(load_trunk(tmp_path / "exported"))
    assert heads.config.num_modules == 3 and heads.layer_kinds == ["sliding_attention"]


def test_values_of_the_layers_that_modules_are_built_as() -> None:
    """Those of the MLP's layer where it is another; experts are numbered on, as the config numbers them."""
    config = {"layer_types": ["a", "b"], "swiglu_limits": [0, 7], "rope_theta": [1, 2], "moe_layers_enum": "0, 1"}
    found = {"layer_types": ["a", "b", "a"], "swiglu_limits": [0, 7, 7], "rope_theta": [1, 2, 1]}
    assert padded(config, 2, 1, (0, 1)) == found | {"moe_layers_enum": "0, 1,2"}
    assert padded({"moe_layers_enum": [1]}, 2, 2, (0, 1)) == {"moe_layers_enum": [1, 2, 3]}
    assert padded({"moe_layers_enum": [1], "rope_theta": 1e4}, 2, 2, (0, 0)) == {}


@pytest.mark.parametrize("key", ["swiglu_limits_shared", "rope_theta"])
def test_settings_of_the_heads_alone_are_said(key: str, tmp_path: Path) -> None:
    """A module is built as a layer of the trunk, limits and all."""
    changed = PUBLISHED[key][:5] + [7.0] + PUBLISHED[key][6:]
    trunk = load_trunk(published_step(tmp_path, **{key: changed}))
    said = rf"settings of their own, which are not followed: {key} [\d.]+, 7.0, [\d.]+ \(layer 0: "
    with pytest.warns(CheckpointWarning, match=said):
        load_native_heads(trunk)
