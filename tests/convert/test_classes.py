"""What class a converted checkpoint names: engines run a family's heads by it alone, transformers may lose it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from foretell.convert.export import export
from foretell.convert.graft import graft
from foretell.convert.import_heads import import_heads
from foretell.convert.strip import strip
from foretell.errors import CheckpointError, UnsupportedModel
from foretell.inspection.inspect import inspect_checkpoint
from tests.checkpoints.family_folders import LOADABLE, finish, write_random
from tests.convert.models import config_of, read, same, write
from tests.convert.test_export import PRE, adapter
from tests.fixtures import tiny_llama


@pytest.fixture
def mimo(tmp_path: Path) -> Path:
    """A MiMo-7B of random numbers."""
    return write_random(LOADABLE["mimo"], tmp_path / "mimo")


@pytest.mark.parametrize("model_type", ["qwen2", "mimo"])
def test_a_tuned_mimo_is_a_mimo_again(model_type: str, mimo: Path, tmp_path: Path) -> None:
    """transformers saves it as a Qwen2; the released config names a model type that only its own code knows."""
    write(transformers.AutoModelForCausalLM.from_pretrained(mimo), tmp_path / "tuned")
    assert config_of(tmp_path / "tuned")["architectures"] == ["Qwen2ForCausalLM"]
    finish(mimo, read(mimo), model_type=model_type)
    graft(tmp_path / "tuned", mimo, tmp_path / "out")
    config = config_of(tmp_path / "out")
    assert (config["architectures"], config["model_type"]) == (["MiMoForCausalLM"], "qwen2")
    engines = inspect_checkpoint(tmp_path / "out").engines
    assert engines == inspect_checkpoint(mimo).engines
    assert engines["vLLM"].startswith("decodes with") and engines["SGLang"].startswith("decodes with")


def test_a_stripped_mimo(mimo: Path, tmp_path: Path) -> None:
    """A plain Qwen2; its heads go back by a graft, or by the export that says what they are."""
    strip(mimo, tmp_path / "plain")
    assert config_of(tmp_path / "plain")["architectures"] == ["Qwen2ForCausalLM"]
    graft(tmp_path / "plain", mimo, tmp_path / "again")
    assert same(read(tmp_path / "again"), read(mimo))
    assert config_of(tmp_path / "again")["architectures"] == ["MiMoForCausalLM"]
    import_heads(mimo, tmp_path / "heads")
    with pytest.raises(UnsupportedModel, match="known of Qwen2ForCausalLM; give --to mimo, or --to deepseek-style"):
        export(tmp_path / "plain", tmp_path / "heads", tmp_path / "out", "native")
    export(tmp_path / "plain", tmp_path / "heads", tmp_path / "out", "mimo")
    assert same(read(tmp_path / "out"), read(mimo))


def llama_as_mimo(tmp_path: Path) -> Path:
    trunk = write(tiny_llama(), tmp_path / "llama")
    export(trunk, adapter(tmp_path / "heads", trunk, **PRE), tmp_path / "mimo", "mimo")
    return tmp_path / "mimo"


def test_a_llama_as_a_mimo_and_back(tmp_path: Path) -> None:
    """A plain Llama with biases of zero, which the layout takes again."""
    mimo = llama_as_mimo(tmp_path)
    strip(mimo, tmp_path / "plain")
    assert config_of(tmp_path / "plain")["architectures"] == ["LlamaForCausalLM"]
    _, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "plain", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    graft(tmp_path / "plain", mimo, tmp_path / "again")
    import_heads(mimo, tmp_path / "own")
    export(tmp_path / "plain", tmp_path / "own", tmp_path / "out", "mimo")
    for folder in ("again", "out"):
        assert same(read(tmp_path / folder), read(mimo))
        assert config_of(tmp_path / folder)["architectures"] == ["MiMoForCausalLM"]


def test_a_bias_that_engines_would_not_add(tmp_path: Path) -> None:
    """MiMo's class has none on the output of attention: zeros may be there, other numbers would be lost."""
    mimo = llama_as_mimo(tmp_path)
    strip(mimo, tmp_path / "plain")
    import_heads(mimo, tmp_path / "own")
    heads = load_file(tmp_path / "own" / "mtp.safetensors")
    heads["mtp.layers.0.self_attn.o_proj.bias"] += 1
    save_file(heads, tmp_path / "own" / "mtp.safetensors")
    with pytest.raises(CheckpointError, match="o_proj.bias is not zero, and this layout"):
        export(tmp_path / "plain", tmp_path / "own", tmp_path / "out", "mimo")
    biased = write(tiny_llama(attention_bias=True), tmp_path / "biased")
    finish(biased, read(biased) | {"model.layers.1.self_attn.o_proj.bias": torch.ones(64)})
    with pytest.raises(CheckpointError, match="have no biases on the output of attention"):
        export(biased, adapter(tmp_path / "zeros", biased, **PRE), tmp_path / "out", "mimo")
    assert not (tmp_path / "out").exists()


def test_heads_with_biases_on_a_trunk_without(tmp_path: Path) -> None:
    """Engines would build the trunk with biases that no file fills."""
    mimo = llama_as_mimo(tmp_path)
    with pytest.raises(CheckpointError, match=r"do not fit .*: attention_bias True \(here False\)"):
        graft(tmp_path / "llama", mimo, tmp_path / "out")
