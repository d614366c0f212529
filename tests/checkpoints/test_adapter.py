import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import LlamaForCausalLM

from foretell.checkpoints.adapter import (
    StaleHeadsWarning,
    check_target,
    load_adapter,
    read_adapter_config,
    save_adapter,
)
from foretell.errors import AdapterMismatch, CheckpointError
from foretell.models.heads import Heads
from foretell.models.trunk import Trunk
from tests.fixtures import (
    FAMILIES,
    encode,
    random_heads,
    script_trunk,
    scripted_heads,
    tiny_llama,
    tiny_qwen2,
)

CHAIN = ">hi😀!<eos>"
LLAMA_LAYER = [f"{name}.weight" for name in ("input_layernorm", "post_attention_layernorm")]
LLAMA_LAYER += [f"self_attn.{x}_proj.weight" for x in "qkvo"] + [f"mlp.{x}_proj.weight" for x in ("gate", "up", "down")]
Tensors = dict[str, torch.Tensor]


def states(heads: Heads) -> list[torch.Tensor]:
    ids = torch.tensor([encode("hello, heads")])
    doc_ids = torch.zeros_like(ids)
    with torch.no_grad():
        return heads.training_states(heads.trunk.text_states(ids, doc_ids), heads.trunk.embed(ids), doc_ids)


def guesses(heads: Heads) -> list[int]:
    """Depth-1 guesses along the script's chain."""
    ids = torch.tensor([encode(CHAIN)])
    doc_ids = torch.zeros_like(ids)
    with torch.no_grad():
        first = heads.training_states(heads.trunk.text_states(ids, doc_ids), heads.trunk.embed(ids), doc_ids)[0]
        return heads.project(first, 1)[0].argmax(-1).tolist()


@pytest.fixture
def script(tmp_path: Path) -> tuple[Trunk, Path]:
    """SCRIPT and an adapter with its perfect head."""
    trunk = script_trunk(CHAIN)
    save_adapter(scripted_heads(trunk, "perfect"), tmp_path / "adapter")
    return trunk, tmp_path / "adapter"


def edit_tensors(folder: Path, edit: Callable[[Tensors], Tensors]) -> None:
    tensors = edit(load_file(folder / "mtp.safetensors"))
    save_file(tensors, folder / "mtp.safetensors")
    edit_config(folder, tensors=len(tensors))


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "mtp_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refusal(trunk: Trunk, folder: Path, kind: type[CheckpointError] = CheckpointError) -> str:
    with pytest.raises(kind) as caught:
        load_adapter(trunk, folder)
    message = str(caught.value)
    assert "\n" not in message and str(folder) in message
    return message


# What is written


SEQUENTIAL: list[dict[str, Any]] = [{"unrolled": True}, {"unrolled": False}]
PARALLEL: list[dict[str, Any]] = [
    {"kind": "parallel", "hidden_source": "below"},
    {"kind": "parallel", "own_output": True, "final_norm": "trunk"},
    {"kind": "parallel", "block": "linear", "draft_ids": [2, 5, 256]},
    {"kind": "medusa", "num_res_blocks": 2, "draft_ids": [2, 5, 256]},
]
CASES = [(family, kind) for family in sorted(FAMILIES) for kind in SEQUENTIAL]
CASES += [(family, kind) for family in ("llama", "gemma2", "glm4_moe", "deepseek_v3") for kind in PARALLEL]


@pytest.mark.parametrize(("family", "kind"), CASES, ids=str)
def test_round_trip_keeps_every_value(tmp_path: Path, family: str, kind: dict[str, Any]) -> None:
    trunk = Trunk(FAMILIES[family]())
    heads = random_heads(trunk, num_depths=2, **kind)
    save_adapter(heads, tmp_path / "a", {"steps": 7}, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = load_adapter(trunk, tmp_path / "a")
    assert loaded.config == heads.config
    assert loaded.state_dict().keys() == heads.state_dict().keys()
    assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in heads.state_dict().items())
    assert all(torch.equal(a, b) for a, b in zip(states(loaded), states(heads), strict=True))
    assert not loaded.training and not any(parameter.requires_grad for parameter in loaded.parameters())


def test_names_on_disk_are_the_published_ones(tmp_path: Path) -> None:
    heads = random_heads(
        Trunk(tiny_llama()), draft_ids=[2, 5, 256], own_output=True, unrolled=False, num_modules=2, num_depths=2
    )
    save_adapter(heads, tmp_path / "a")
    stored = load_file(tmp_path / "a" / "mtp.safetensors")
    parts = [f"{name}.weight" for name in ("enorm", "hnorm", "eh_proj", "post_norm")] + LLAMA_LAYER
    expected = {f"mtp.layers.{k}.{part}" for k in range(2) for part in parts}
    assert set(stored) == expected | {"mtp.output.weight", "mtp.draft_ids"}
    assert stored.pop("mtp.draft_ids").tolist() == [2, 5, 256]
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ({"kind": "parallel", "final_norm": "trunk"}, LLAMA_LAYER),
        ({"kind": "parallel", "own_output": True}, [*LLAMA_LAYER, "post_norm.weight", "output.weight"]),
        ({"kind": "parallel", "block": "linear"}, ["linear.weight", "post_norm.weight"]),
        (
            {"kind": "medusa", "num_res_blocks": 2},
            [f"blocks.{j}.linear.{part}" for j in range(2) for part in ("weight", "bias")] + ["output.weight"],
        ),
    ],
    ids=str,
)
def test_names_on_disk_of_heads_that_read_no_tokens(tmp_path: Path, kind: dict[str, Any], parts: list[str]) -> None:
    """A tensor that is missing, unexpected or misshapen is refused by that name."""
    trunk = Trunk(tiny_llama())
    save_adapter(random_heads(trunk, num_depths=2, draft_ids=[2, 5, 256], **kind), tmp_path / "a")
    family = "heads" if kind["kind"] == "medusa" else "layers"
    names = {f"mtp.{family}.{k}.{part}" for k in range(2) for part in parts}
    assert set(load_file(tmp_path / "a" / "mtp.safetensors")) == names | {"mtp.draft_ids"}
    one, other = f"mtp.{family}.1.{parts[0]}", f"mtp.{family}.0.{parts[-1]}"
    edit_tensors(tmp_path / "a", lambda t: {name: x for name, x in t.items() if name != one} | {"mtp.x": t[one]})
    assert f"1 missing: {one}; 1 unexpected: mtp.x." in refusal(trunk, tmp_path / "a")
    edit_tensors(tmp_path / "a", lambda t: {one: t.pop("mtp.x")} | t | {other: t[other][:2].clone()})
    assert f"1 misshapen: {other} [" in refusal(trunk, tmp_path / "a")


def test_settings_that_came_later_may_be_absent(tmp_path: Path) -> None:
    """Adapters written before there were other kinds still load, with the meaning they had."""
    trunk = Trunk(tiny_llama())
    heads = random_heads(trunk)
    save_adapter(heads, tmp_path / "a")
    stored = json.loads((tmp_path / "a" / "mtp_config.json").read_text())["heads"]
    edit_config(tmp_path / "a", heads={n: v for n, v in stored.items() if n not in ("block", "num_res_blocks")})
    assert load_adapter(trunk, tmp_path / "a").config == heads.config
    edit_config(tmp_path / "a", heads=stored | {"unrolled": None})
    assert "wrong type: unrolled None" in refusal(trunk, tmp_path / "a")


def test_transformers_reads_the_layout_and_gets_the_same_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its MtpModel, on trunk and adapter tensors in one folder, is an outside oracle for the heads too."""
    from transformers.cache_utils import MtpCache
    from transformers.modeling_layers import MtpModel

    model = tiny_llama()
    trunk = Trunk(model, name="tiny")
    heads = random_heads(trunk, unrolled=False, num_modules=2, num_depths=2)
    save_adapter(heads, tmp_path / "adapter", dtype=torch.float32)
    model.config.num_mtp_layers = 2
    model.save_pretrained(tmp_path / "both")
    tensors = load_file(tmp_path / "both" / "model.safetensors") | load_file(tmp_path / "adapter" / "mtp.safetensors")
    save_file(tensors, tmp_path / "both" / "model.safetensors", metadata={"format": "pt"})
    monkeypatch.setattr(LlamaForCausalLM, "_keys_to_ignore_on_load_unexpected", [r"^mtp\."])

    main = LlamaForCausalLM.from_pretrained(tmp_path / "both")
    mtp = MtpModel.from_pretrained(main).eval()
    ids = torch.tensor([encode("hello, heads")])
    with torch.no_grad():
        state = main.model(input_ids=ids).last_hidden_state[:, :-2]
        cache = MtpCache(config=main.config.get_mtp_config())
        for depth, ours in enumerate(states(heads), start=1):
            positions = torch.arange(state.shape[1]).unsqueeze(0) + depth
            next_ids = ids[:, depth : depth + state.shape[1]]
            state = mtp.forward_layer(depth - 1, state, positions, cache, input_ids=next_ids)
            torch.testing.assert_close(ours[:, : state.shape[1]], state, rtol=1e-4, atol=1e-4)


def test_config_says_what_the_heads_are_and_whom_they_fit(tmp_path: Path) -> None:
    trunk = Trunk(tiny_llama(), name="tiny")
    heads = random_heads(trunk, draft_ids=range(100), extra={"draft_coverage": 0.98})
    save_adapter(heads, tmp_path / "a", {"steps": 3, "loss": [1.5, 2.5]})
    info = read_adapter_config(tmp_path / "a")
    assert info.heads == heads.config and info.num_tensors == 14
    assert (info.trunk.name, info.trunk.architecture) == ("tiny", "LlamaForCausalLM")
    assert (info.trunk.hidden_size, info.trunk.vocab_size, info.trunk.num_layers) == (64, 260, 2)
    assert info.trunk.fingerprint == trunk.fingerprint()
    assert info.training == {"steps": 3, "loss": [1.5, 2.5]}
    assert info.draft_vocab == {"size": 100, "coverage": 0.98}


def test_heads_take_the_trunks_type(tmp_path: Path) -> None:
    save_adapter(random_heads(Trunk(tiny_llama())), tmp_path / "a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the same checkpoint in another type is not another trunk
        loaded = load_adapter(Trunk(tiny_llama().bfloat16()), tmp_path / "a")
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.bfloat16}


def test_tied_embeddings_are_stored_by_nobody_and_shared_again(tmp_path: Path) -> None:
    """The file does not grow by an embedding, and the heads' output is the trunk's storage."""
    trunk = Trunk(tiny_llama(tie_word_embeddings=True))
    heads = random_heads(trunk, unrolled=False, num_modules=2, num_depths=2)
    save_adapter(heads, tmp_path / "a", dtype=torch.float32)
    loaded = load_adapter(trunk, tmp_path / "a")
    assert not any(tensor.shape == (260, 64) for tensor in load_file(tmp_path / "a" / "mtp.safetensors").values())
    assert loaded.trunk.output_head.weight.data_ptr() == trunk.model.get_input_embeddings().weight.data_ptr()
    hidden = torch.randn(3, 64)
    assert torch.equal(loaded.project(hidden, 1), heads.project(hidden, 1))


def test_the_trunks_final_norm_is_not_stored(tmp_path: Path) -> None:
    trunk = Trunk(tiny_llama())
    heads = random_heads(trunk, final_norm="trunk")
    save_adapter(heads, tmp_path / "a", dtype=torch.float32)
    assert not [name for name in load_file(tmp_path / "a" / "mtp.safetensors") if "post_norm" in name]
    assert all(
        torch.equal(a, b) for a, b in zip(states(load_adapter(trunk, tmp_path / "a")), states(heads), strict=True)
    )


def test_whoever_may_read_the_config_may_read_the_tensors(script: tuple[Trunk, Path]) -> None:
    modes = [(script[1] / name).stat().st_mode for name in ("mtp.safetensors", "mtp_config.json")]
    assert modes[0] == modes[1]


# What is refused


def test_missing_unexpected_and_misshapen_tensors_are_all_named(script: tuple[Trunk, Path], tmp_path: Path) -> None:
    """One line says which; nothing is loaded."""
    trunk, folder = script
    names = sorted(load_file(folder / "mtp.safetensors"))

    def broken(edit: Callable[[Tensors], Tensors]) -> str:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        edit_tensors(copy, edit)
        message = refusal(trunk, copy)
        assert "without these heads" in message
        return message

    one = "mtp.layers.0.eh_proj.weight"
    assert f"1 missing: {one}." in broken(lambda t: {name: x for name, x in t.items() if name != one})
    assert f"{len(names)} missing: {', '.join(names)}." in broken(lambda t: {})
    prefixed = broken(lambda t: {f"model.{name}": x for name, x in t.items()})
    assert f"{len(names)} missing: {', '.join(names)};" in prefixed
    assert f"{len(names)} unexpected: {', '.join(f'model.{name}' for name in names)}." in prefixed
    misshapen = broken(lambda t: t | {one: t[one][:, :260].contiguous(), names[1]: t[names[1]][:5].clone()})
    assert "2 misshapen" in misshapen and f"{one} [260, 260] instead of [260, 520]" in misshapen
    assert f"{one} of type I8" in broken(lambda t: t | {one: t[one].to(torch.int8)})


def test_what_is_shared_with_the_trunk_may_be_absent(script: tuple[Trunk, Path]) -> None:
    """Neither embedding nor output head is stored; the head stays perfect."""
    trunk, folder = script
    assert not [name for name in load_file(folder / "mtp.safetensors") if "embed" in name or "output" in name]
    assert guesses(load_adapter(trunk, folder))[:-2] == encode(CHAIN)[2:]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_refused_by_name(script: tuple[Trunk, Path], value: float) -> None:
    trunk, folder = script
    name = "mtp.layers.0.hnorm.weight"
    edit_tensors(folder, lambda t: t | {name: torch.full_like(t[name], value)})
    with pytest.raises(CheckpointError, match=name):
        load_adapter(trunk, folder)
    heads = scripted_heads(trunk, "perfect")
    nn.init.constant_(heads.module_at(1).hnorm.weight, value)
    with pytest.raises(CheckpointError, match=name):
        save_adapter(heads, folder.with_name("other"))
    assert not folder.with_name("other").exists()


def test_damaged_files_are_one_line(script: tuple[Trunk, Path], tmp_path: Path) -> None:
    trunk, folder = script
    tensors, config = folder / "mtp.safetensors", folder / "mtp_config.json"
    good_tensors, good_config = tensors.read_bytes(), config.read_text()
    for damaged in (good_tensors[:-10], good_tensors[:100], b"", b"\xff" * 64):
        tensors.write_bytes(damaged)
        assert "not a readable safetensors file" in refusal(trunk, folder)
    torch.save({"mtp.layers.0.eh_proj.weight": torch.zeros(1)}, tensors)  # a pickle is never opened
    assert "not a readable safetensors file" in refusal(trunk, folder)
    tensors.unlink()
    assert "mtp.safetensors: no such file" in refusal(trunk, folder)
    tensors.write_bytes(good_tensors)
    for text, problem in (
        (good_config[:50], "broken JSON at line"),
        ("[1]", "holds a list"),
        (good_config.replace('"format_version": 1', '"format_version": 9'), "format_version is 9"),
        (good_config.replace('"concat": "embedding_first",', ""), "heads settings missing: concat"),
        (good_config.replace('"concat": "embedding_first"', '"concat": "both"'), "concat is 'both'"),
        (good_config.replace('"unrolled": true', '"unrolled": 1'), "wrong type: unrolled 1"),
        (good_config.replace('"kind"', '"sort": 1, "kind"'), "unknown settings sort"),
        (good_config.replace('"fingerprint"', '"print"'), "trunk settings missing: fingerprint"),
        (good_config.replace('"tensors": 13', '"tensors": 12'), "announces 12 tensors"),
    ):
        assert text != good_config
        config.write_text(text)
        assert problem in refusal(trunk, folder)
    config.unlink()
    assert "no mtp_config.json in it; expected an adapter" in refusal(trunk, folder)
    assert "no such folder" in refusal(trunk, tmp_path / "nowhere")
    assert "is a file" in refusal(trunk, tensors)


@pytest.mark.parametrize("ids", [[5, 2, 256], [2, 2, 256], [2, 5, 260], [-1, 5, 256]])
def test_draft_ids_are_ascending_unique_and_in_the_vocabulary(tmp_path: Path, ids: list[int]) -> None:
    trunk = Trunk(tiny_llama())
    save_adapter(random_heads(trunk, draft_ids=[2, 5, 256]), tmp_path / "a")
    assert load_adapter(trunk, tmp_path / "a").draft_ids_V is not None
    edit_tensors(tmp_path / "a", lambda t: t | {"mtp.draft_ids": torch.tensor(ids)})
    assert "ascending, unique and within 0..259" in refusal(trunk, tmp_path / "a")
    edit_tensors(tmp_path / "a", lambda t: {name: x for name, x in t.items() if name != "mtp.draft_ids"})
    assert "1 missing: mtp.draft_ids" in refusal(trunk, tmp_path / "a")


# Other trunks


def test_another_kind_of_trunk_is_a_mismatch(tmp_path: Path) -> None:
    save_adapter(random_heads(Trunk(tiny_llama(), name="llama")), tmp_path / "a")
    for other, part in (
        (tiny_qwen2(), "architecture LlamaForCausalLM (here Qwen2ForCausalLM)"),
        (tiny_llama(hidden_size=32), "hidden_size 64 (here 32)"),
        (tiny_llama(vocab_size=300), "vocab_size 260 (here 300)"),
    ):
        message = refusal(Trunk(other, name="other"), tmp_path / "a", AdapterMismatch)
        assert part in message and "made for llama" in message


def test_stale_heads_load_with_one_warning(tmp_path: Path) -> None:
    """Heads trained on trunk A, attached to trunk B with another successor map."""
    before = script_trunk(CHAIN)
    save_adapter(scripted_heads(before, "perfect", own_output=True), tmp_path / "a")
    after = script_trunk("".join([">", "ih", "😀!<eos>"]))
    with pytest.warns(StaleHeadsWarning) as caught:
        heads = load_adapter(after, tmp_path / "a")
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "another trunk" in message and "foretell train RECIPE" in message and "Text stays exact" in message
    assert guesses(heads)[:-2] != encode(">ih😀!<eos>")[2:]  # still the old trunk's successors


# Folders


def test_an_adapter_is_replaced_only_on_request(script: tuple[Trunk, Path]) -> None:
    trunk, folder = script
    wrong = scripted_heads(trunk, "wrong")
    with pytest.raises(CheckpointError, match="already there"):
        save_adapter(wrong, folder)
    assert guesses(load_adapter(trunk, folder))[0] == encode(CHAIN)[2]
    save_adapter(wrong, folder, overwrite=True)
    assert guesses(load_adapter(trunk, folder))[0] != encode(CHAIN)[2]
    assert [path.name for path in folder.parent.iterdir()] == ["adapter"]


def test_a_folder_with_other_files_is_never_touched(script: tuple[Trunk, Path], tmp_path: Path) -> None:
    trunk, folder = script
    (folder / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for target in (folder, folder / "notes.txt"):
        for overwrite in (False, True):
            with pytest.raises(CheckpointError, match=r"notes\.txt"):
                save_adapter(scripted_heads(trunk, "wrong"), target, overwrite=overwrite)
            with pytest.raises(CheckpointError):
                check_target(target, overwrite)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (tmp_path / "empty").mkdir()
    save_adapter(scripted_heads(trunk, "perfect"), tmp_path / "empty")
    save_adapter(scripted_heads(trunk, "perfect"), tmp_path / "deep" / "er")


def test_a_failed_save_leaves_the_old_adapter(script: tuple[Trunk, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    trunk, folder = script
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full_disk(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    rename = Path.rename

    def no_new_folder(self: Path, target: Path) -> Path:
        return full_disk() if self.suffix == ".new" else rename(self, target)

    for place, failure in (
        ("foretell.checkpoints.adapter.save_file", full_disk),
        ("pathlib.Path.rename", no_new_folder),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, failure)
            with pytest.raises(CheckpointError, match="No space left"):
                save_adapter(scripted_heads(trunk, "wrong"), folder, overwrite=True)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        assert [path.name for path in folder.parent.iterdir()] == ["adapter"]


def test_the_config_is_read_without_torch(script: tuple[Trunk, Path]) -> None:
    code = (
        "import sys; from foretell.inspection.inspect import inspect_checkpoint; inspect_checkpoint(sys.argv[1]); "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(script[1])], check=True)
