"""Sizes: presets against what is published, folders against what is in them, and what cannot be planned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretell.convert.import_heads import import_heads
from foretell.convert.strip import strip
from foretell.errors import CheckpointError, ForetellError
from foretell.planning.adapter_heads import with_adapter
from foretell.planning.open_model import open_model
from foretell.planning.presets import PRESETS
from tests import fixtures
from tests.checkpoints.family_folders import LOADABLE, write_random
from tests.docs.conftest import ROOT
from tests.inspection.manifests import bf16, write
from tests.planning.models import preset

PUBLISHED_B = {  # (parameters, active ones where routed) in billions, from the model pages and reports
    "deepseek-v3": (671, 37),
    "qwen3-next-80b-a3b": (80, 3),
    "qwen3.5-0.8b": (0.8, None),
    "qwen3.5-4b": (4, None),
    "qwen3.5-9b": (9, None),
    "qwen3.5-27b": (27, None),
    "qwen3.5-35b-a3b": (35, 3),
    "qwen3.5-397b-a17b": (397, 17),
    "glm-4.5": (355, 32),
    "mimo-7b": (7.6, None),
    "llama-3-8b": (8.03, None),
    "llama-3-70b": (70.6, None),
    "smollm2-135m": (0.135, None),
    "smollm2-360m": (0.362, None),
    "smollm2-1.7b": (1.71, None),
}
CACHE_BYTES = {  # bf16 bytes a token: layers with a cache x numbers x 2
    "deepseek-v3": 61 * (512 + 64) * 2,
    "qwen3-next-80b-a3b": 12 * 2 * 2 * 256 * 2,
    "llama-3-70b": 80 * 2 * 8 * 128 * 2,
    "glm-4.5": 92 * 2 * 8 * 128 * 2,
    "smollm2-135m": 30 * 2 * 3 * 64 * 2,
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_their_published_sizes(name: str) -> None:
    total, active = PUBLISHED_B[name]
    model = preset(name)
    assert model.parameters == pytest.approx(total * 1e9, rel=0.065 if total < 5 else 0.02)
    if active is not None:
        # "A3B" is rounded, and counts the embedding's rows or the output matrix or neither.
        assert active - 1 < model.stack.active / 1e9 < active + 1
    assert (model.stack.routed > 0) == (active is not None)


@pytest.mark.parametrize("name", CACHE_BYTES)
def test_presets_keep_what_their_attention_keeps(name: str) -> None:
    model = preset(name)
    assert 2 * (model.row_numbers(1001) - model.row_numbers(1000)) == CACHE_BYTES[name]


def test_flops_of_attention_over_the_context() -> None:
    """(query, key) pairs: 2 products of 2 FLOPs a number; DeepSeek-V3's with keys of 576 and values of 512 numbers."""
    assert [cache.pair_flops for cache in preset("llama-3-70b").caches] == [2 * 2 * 64 * 128]
    assert [cache.pair_flops for cache in preset("deepseek-v3").caches] == [2 * 128 * (512 + 64) + 2 * 128 * 512]
    full = preset("qwen3.5-27b").caches[1]
    assert (full.kind, full.num_layers, full.flops(10)) == ("full_attention", 16, 16 * 4 * 24 * 256 * 10)
    linear = preset("qwen3.5-27b").caches[0]
    assert linear.flops(10) == linear.flops(10_000) == 48 * 7 * 48 * 128 * 128


def test_states_of_gated_delta_nets() -> None:
    """Qwen3-Next: 36 layers of 32 x 128 x 128 numbers and three inputs of a convolution over 8,192 channels."""
    model = preset("qwen3-next-80b-a3b")
    assert model.row_numbers(0) == 36 * (32 * 128 * 128 + 3 * (2 * 16 * 128 + 32 * 128))


def test_windows_stop_growing(tmp_path: Path) -> None:
    fixtures.tiny_mistral(sliding_window=16).save_pretrained(tmp_path / "m")
    model = open_model(str(tmp_path / "m"))
    assert model.row_numbers(10) < model.row_numbers(16) == model.row_numbers(1000)


def test_a_folder_with_weights_and_its_config_alone_are_one_model(tmp_path: Path) -> None:
    fixtures.tiny_llama().save_pretrained(tmp_path / "m")
    with_weights = open_model(str(tmp_path / "m"))
    (tmp_path / "m" / "model.safetensors").unlink()
    assert open_model(str(tmp_path / "m")) == with_weights
    by_file = open_model(str(tmp_path / "m" / "config.json"))
    assert by_file == with_weights and by_file.name == "m"
    assert with_weights.stack.active + 260 * 64 == with_weights.parameters  # all but the embedding


def test_heads_in_a_folder_are_the_ones_that_are_planned(tmp_path: Path) -> None:
    config = json.loads((_save_llama(tmp_path) / "config.json").read_text())
    trunk = open_model(str(tmp_path / "m"))
    shapes = {"lm_head.weight": (260, 64), "model.embed_tokens.weight": (260, 64), "model.norm.weight": (64,)}
    for layer in range(2):
        shapes |= _layer(f"model.layers.{layer}")
    heads = {
        "mtp.fc.weight": (64, 128),
        **{f"mtp.{name}.weight": (64,) for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")},
        **_layer("mtp.layers.0"),
    }
    native = open_model(str(write(tmp_path / "native", config | {"model_type": "llama"}, bf16(shapes | heads))))
    assert native.parameters == trunk.parameters and native.stack == trunk.stack
    assert native.heads.parameters == trunk.heads.parameters and native.heads.stack == trunk.heads.stack
    assert native.heads.origin == "1 native module"


def test_layers_with_two_attentions(tmp_path: Path) -> None:
    """LongCat-Flash: each keeps two attentions' context, and heads are built as the first half of one."""
    native = write_random(LOADABLE["longcat"], tmp_path / "native")
    strip(native, tmp_path / "plain", reload=False)
    import_heads(native, tmp_path / "adapter")
    with_heads, plain = (open_model(str(path)) for path in (native, tmp_path / "plain"))
    assert with_heads.num_layers == plain.num_layers == 2
    assert [(cache.num_layers, cache.token_numbers) for cache in plain.caches] == [(4, 16 + 8)]
    adapted = with_adapter(plain, str(tmp_path / "adapter"))
    for heads in (with_heads.heads, plain.heads, adapted.heads):
        assert (heads.parameters, heads.cache.num_layers) == (plain.heads.parameters, 1)
        assert heads.stack.dense == plain.heads.stack.dense > 3 * 64 * 96 and heads.stack.routed == 0
        assert set(heads.linears) == set(plain.heads.linears)


def _save_llama(tmp_path: Path) -> Path:
    fixtures.tiny_llama().save_pretrained(tmp_path / "m")
    return tmp_path / "m"


def _layer(at: str) -> dict[str, tuple[int, ...]]:
    return {
        f"{at}.input_layernorm.weight": (64,),
        f"{at}.post_attention_layernorm.weight": (64,),
        f"{at}.self_attn.q_proj.weight": (64, 64),
        f"{at}.self_attn.k_proj.weight": (32, 64),
        f"{at}.self_attn.v_proj.weight": (32, 64),
        f"{at}.self_attn.o_proj.weight": (64, 64),
        f"{at}.mlp.gate_proj.weight": (96, 64),
        f"{at}.mlp.up_proj.weight": (96, 64),
        f"{at}.mlp.down_proj.weight": (64, 96),
    }


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("{", "broken JSON"),
        ("[1]", "holds a list"),
        ("{}", "model_type is None"),
        ('{"model_type": 3}', "model_type is 3"),
        ('{"model_type": "no_such_model"}', "no config that transformers can read"),
        ('{"model_type": "llama", "hidden_size": "wide"}', "no config that transformers can read"),
        ('{"model_type": "llama", "hidden_size": -64}', "not a causal LM"),
        ('{"model_type": "llama", "num_hidden_layers": 0}', "num_hidden_layers is 0"),
        ('{"model_type": "mamba2"}', "cannot be planned"),
        ("\xff\xfe", "cannot be read"),
    ],
)
def test_a_wrong_config_is_one_line(tmp_path: Path, config: str, problem: str) -> None:
    path = tmp_path / "m" / "config.json"
    path.parent.mkdir()
    path.write_bytes(config.encode("latin-1"))
    with pytest.raises(ForetellError, match=problem) as caught:
        open_model(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["llama-3-8", "", "no/such", "x" * 5000, str(ROOT / "docs"), "a\0b"])
def test_a_wrong_name_is_one_line(name: str) -> None:
    with pytest.raises(CheckpointError, match=r"presets|cannot be read") as caught:
        open_model(name)
    assert "\n" not in str(caught.value)
    if name == "llama-3-8":
        assert 'did you mean "llama-3-8b"?' in str(caught.value)


def test_the_demo_and_an_adapter(tmp_path: Path) -> None:
    """The name that every command knows, and heads in place of a trunk."""
    assert open_model("demo").name == open_model("smollm2-135m").name
    (tmp_path / "mtp_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="an adapter, heads alone; give the trunk"):
        open_model(str(tmp_path))


@pytest.mark.parametrize("key", ["written_by", "environment", "runs"])
def test_a_file_of_results_is_no_model(tmp_path: Path, key: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({key: {}}))
    with pytest.raises(CheckpointError, match="results of a command, no model; give the model first, and this file as"):
        open_model(str(path))
