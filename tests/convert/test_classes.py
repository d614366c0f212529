"""What class a converted checkpoint names: engines run a family's heads by it alone, transformers may lose it."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers

from foretell.convert.export import export
from foretell.convert.graft import graft
from foretell.convert.import_heads import import_heads
from foretell.convert.strip import strip
from foretell.errors import UnsupportedModel
from foretell.inspection.inspect import inspect_checkpoint
from tests.checkpoints.family_folders import LOADABLE, finish, write_random
from tests.convert.models import config_of, read, same, write


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
