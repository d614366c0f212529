"""Heads out of a checkpoint and back on it: bits, config, shards, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import foretell
from foretell.checkpoints.adapter import save_adapter
from foretell.checkpoints.load import load_trunk
from foretell.checkpoints.model_folder import save_model
from foretell.checkpoints.stored import StoredModel
from foretell.convert.graft import graft
from foretell.convert.raw import copy_kept
from foretell.convert.strip import strip
from foretell.errors import CheckpointError
from tests.convert.models import config_of, read, same, with_heads, write, write_shards
from tests.fixtures import random_heads, tiny_deepseek_v3, tiny_llama, tiny_qwen3_next

NAME = "model.layers.2."


@pytest.mark.parametrize("num_shards", [1, 2, 7])
def test_strip_keeps_every_bit_of_the_trunk(tmp_path: Path, num_shards: int) -> None:
    source = with_heads(tmp_path / "m", num_shards)
    before = read(source)
    report = strip(source, tmp_path / "plain")
    heads = {name for name in before if name.startswith(NAME)}
    after = read(tmp_path / "plain")
    assert same(after, {name: tensor for name, tensor in before.items() if name not in heads})
    assert set(report.dropped) == heads and set(report.kept) == set(after) and not report.added
    assert same(read(source), before)
    config = config_of(tmp_path / "plain")
    assert config["num_nextn_predict_layers"] == 0 and config["num_hidden_layers"] == 2
    assert (tmp_path / "plain" / "tokenizer.json").is_file()
    _, loading = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "plain", output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    assert foretell.load(tmp_path / "plain").heads is None


def test_an_untouched_shard_is_copied_and_the_index_is_rebuilt(tmp_path: Path) -> None:
    source = with_heads(tmp_path / "m")
    tensors = load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    trunk = {name: tensor for name, tensor in tensors.items() if not name.startswith(NAME)}
    names = sorted(trunk)
    parts = [
        {n: trunk[n] for n in names[:9]},
        {n: trunk[n] for n in names[9:]},
        {n: tensors[n] for n in tensors.keys() - trunk.keys()},
    ]
    weight_map = {}
    for number, part in enumerate(parts):
        save_file(part, source / f"shard{number}.safetensors", metadata={"format": "pt", "note": "kept by a copy"})
        weight_map |= dict.fromkeys(part, f"shard{number}.safetensors")
    (source / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    strip(source, tmp_path / "plain")
    files = sorted((tmp_path / "plain").glob("*.safetensors"))
    assert [file.name for file in files] == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert files[0].read_bytes() == (source / "shard0.safetensors").read_bytes()
    index = json.loads((tmp_path / "plain" / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == trunk.keys()
    assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in trunk.values())


def test_strip_and_graft_give_the_checkpoint_back(tmp_path: Path) -> None:
    """C10: a round trip without training is bit-identical, copies of embedding and output head included."""
    source = with_heads(tmp_path / "m", 3)
    strip(source, tmp_path / "plain")
    graft(tmp_path / "plain", source, tmp_path / "again")
    assert same(read(tmp_path / "again"), read(source))
    assert config_of(tmp_path / "again")["num_nextn_predict_layers"] == 1
    text = [
        foretell.Engine(foretell.load(f)).generate(["abc"], foretell.SamplingParams(max_tokens=12), depth=1)[0]
        for f in (source, tmp_path / "again")
    ]
    assert text[0].token_ids == text[1].token_ids and text[0].stats == text[1].stats


def test_graft_on_a_tuned_trunk_that_lost_its_heads(tmp_path: Path) -> None:
    """C10, C16: the usual load and save; the copies become the tuned trunk's, the rest the original's bits."""
    source = with_heads(tmp_path / "m")
    model = transformers.AutoModelForCausalLM.from_pretrained(source)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01)
    model.save_pretrained(tmp_path / "tuned")
    assert config_of(tmp_path / "tuned")["num_nextn_predict_layers"] == 1  # it still announces them
    report = graft(tmp_path / "tuned", source, tmp_path / "out")
    tuned, original, out = read(tmp_path / "tuned"), read(source), read(tmp_path / "out")
    copies = {
        f"{NAME}embed_tokens.weight": "model.embed_tokens.weight",
        f"{NAME}shared_head.head.weight": "lm_head.weight",
    }
    for name, tensor in out.items():
        expected = tuned[copies[name]] if name in copies else original[name] if name.startswith(NAME) else tuned[name]
        assert torch.equal(tensor, expected), name
    assert out.keys() == original.keys()
    assert any("acceptance may drop" in note for note in report.notes)
    assert foretell.load(tmp_path / "out").heads is not None


def test_graft_of_flat_names_on_a_hybrid(tmp_path: Path) -> None:
    """C10: Qwen3-Next, whose heads transformers drops without a word."""
    source = write(tiny_qwen3_next(), tmp_path / "m")
    tensors = load_file(source / "model.safetensors")
    heads = {
        name.replace("model.layers.3", "mtp.layers.0"): t.clone() for name, t in tensors.items() if "layers.3." in name
    }
    heads |= {f"mtp.{name}.weight": torch.zeros(64) for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}
    heads["mtp.fc.weight"] = torch.randn(64, 128)
    save_file(tensors | heads, source / "model.safetensors", metadata={"format": "pt"})
    write(transformers.AutoModelForCausalLM.from_pretrained(source), tmp_path / "tuned")
    assert not any(name.startswith("mtp") for name in read(tmp_path / "tuned"))
    graft(tmp_path / "tuned", source, tmp_path / "out")
    assert same(read(tmp_path / "out"), tensors | heads)


def test_strip_of_a_folder_of_ours(tmp_path: Path) -> None:
    trunk = load_trunk(write(tiny_llama(), tmp_path / "t"))
    save_model(trunk, random_heads(trunk), tmp_path / "m")
    strip(tmp_path / "m", tmp_path / "plain")
    assert same(read(tmp_path / "plain"), read(tmp_path / "t"))
    assert not (tmp_path / "plain" / "mtp_config.json").exists()


def test_a_config_that_announces_lost_heads_is_mended(tmp_path: Path) -> None:
    model = tiny_deepseek_v3()
    model.config.num_nextn_predict_layers = 1
    report = strip(write(model, tmp_path / "m"), tmp_path / "plain")
    assert config_of(tmp_path / "plain")["num_nextn_predict_layers"] == 0 and "claims none now" in report.notes[0]


def test_what_cannot_be_stripped_or_grafted(tmp_path: Path) -> None:
    source = with_heads(tmp_path / "m")
    plain = write(tiny_deepseek_v3(), tmp_path / "plain")
    llama = write(tiny_llama(), tmp_path / "l")
    save_adapter(random_heads(load_trunk(llama)), tmp_path / "a")
    refused = {
        "plain already": lambda: strip(llama, tmp_path / "o"),
        "an adapter, heads without a trunk": lambda: strip(tmp_path / "a", tmp_path / "o"),
        "no such file or folder": lambda: strip(tmp_path / "nowhere", tmp_path / "o"),
        "is the source": lambda: strip(source, source),
        "lies in it": lambda: strip(source, source / "sub"),
        "holds other files": lambda: strip(source, tmp_path / "a", overwrite=True),
        "no native heads are in its files": lambda: graft(plain, plain, tmp_path / "o"),
        r"has \d+ tensors of native heads already": lambda: graft(source, source, tmp_path / "o"),
        "do not fit .*model_type 'deepseek_v3'": lambda: graft(llama, source, tmp_path / "o"),
    }
    for problem, act in refused.items():
        with pytest.raises(CheckpointError, match=problem):
            act()
    assert not (tmp_path / "o").exists() and sorted(p.name for p in tmp_path.iterdir()) == ["a", "l", "m", "plain"]


def test_graft_refuses_another_quantisation(tmp_path: Path) -> None:
    """Heads and trunk would be read with one setting."""
    source, plain = with_heads(tmp_path / "m"), write(tiny_deepseek_v3(), tmp_path / "plain")
    config = config_of(source) | {"quantization_config": {"quant_method": "fp8"}}
    (source / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="quantised as fp8 8, .* as not at all"):
        graft(plain, source, tmp_path / "o")


def test_a_second_run_replaces_only_its_own_folder(tmp_path: Path) -> None:
    source = with_heads(tmp_path / "m")
    (source / "NOTES.md").write_text("of the source")
    strip(source, tmp_path / "plain")
    with pytest.raises(CheckpointError, match="already there"):
        strip(source, tmp_path / "plain")
    strip(source, tmp_path / "plain", overwrite=True)
    (tmp_path / "plain" / "mine.txt").write_text("keep me")
    with pytest.raises(CheckpointError, match="mine.txt"):
        strip(source, tmp_path / "plain", overwrite=True)
    assert (tmp_path / "plain" / "mine.txt").read_text() == "keep me"


def test_nothing_is_left_of_a_conversion_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = with_heads(tmp_path / "m", 4)
    monkeypatch.setattr("foretell.convert.shards.copy_kept", _disk_full)
    with pytest.raises(CheckpointError, match="No space left"):
        strip(source, tmp_path / "plain")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


def _disk_full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_too_small_a_disk_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = with_heads(tmp_path / "m")
    monkeypatch.setattr("foretell.convert.folder.shutil.disk_usage", lambda _: _Usage())
    with pytest.raises(CheckpointError, match="needs about .* GB free"):
        strip(source, tmp_path / "plain")


class _Usage:
    free = 10


def test_scalars_and_odd_types_are_kept(tmp_path: Path) -> None:
    """Scales of quantised models have no dimension, or eight bits."""
    source = with_heads(tmp_path / "m")
    odd = {"a.scale": torch.tensor(0.5), "a.count": torch.tensor(3), "a.none": torch.zeros(0, 4)}
    odd |= {"a.flags": torch.tensor([True, False]), "a.half": torch.ones(3, dtype=torch.float64)}
    tensors = load_file(source / "model.safetensors")
    save_file(tensors | odd, source / "model.safetensors", metadata={"format": "pt"})
    strip(source, tmp_path / "plain")
    assert same(read(tmp_path / "plain"), {n: t for n, t in (tensors | odd).items() if not n.startswith(NAME)})


def test_many_tensors_take_no_longer_each(tmp_path: Path) -> None:
    """A model of 30,000 tensors in 20 files, of each of which one is dropped."""
    source = with_heads(tmp_path / "m")
    (source / "model.safetensors").unlink()
    weight_map = {}
    for number in range(20):
        part = {f"model.layers.0.experts.{number}.{k}.weight": torch.zeros(1) for k in range(1500)}
        part[f"{NAME}{['eh_proj', 'enorm', 'hnorm', 'mlp'][number % 4]}.{number}.weight"] = torch.zeros(1)
        part |= {f"{NAME}{n}.weight": torch.zeros(1) for n in ("eh_proj", "enorm", "hnorm")} if number == 0 else {}
        save_file(part, source / f"s{number}.safetensors", metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, f"s{number}.safetensors")
    (source / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    start = time.process_time()
    strip(source, tmp_path / "plain", reload=False)
    assert time.process_time() - start < 20


def test_a_wrong_bit_in_a_rewritten_shard_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = with_heads(tmp_path / "m")

    def damaged(file: Path, target: Path, kept: set[str]) -> None:
        copy_kept(file, target, kept)
        with safe_open(target, "pt") as written:
            tensors = {name: written.get_tensor(name) for name in written.keys()}  # noqa: SIM118 - not a dict
        save_file(tensors | {"model.norm.weight": tensors["model.norm.weight"] + 1}, target, {"format": "pt"})

    monkeypatch.setattr("foretell.convert.shards.copy_kept", damaged)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight differs"):
        strip(source, tmp_path / "plain")
    assert not (tmp_path / "plain").exists()


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "sub/x.safetensors", "config.json", 3])
def test_an_index_that_leaves_the_folder_is_refused(tmp_path: Path, name: object) -> None:
    source = with_heads(tmp_path / "m", 2)
    index = source / "model.safetensors.index.json"
    values = json.loads(index.read_text())
    values["weight_map"]["lm_head.weight"] = name
    index.write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match="of this folder"):
        strip(source, tmp_path / "plain")


def test_an_index_that_is_wrong_is_refused(tmp_path: Path) -> None:
    source = with_heads(tmp_path / "m", 2)
    index = source / "model.safetensors.index.json"
    values = json.loads(index.read_text())
    values["weight_map"]["not.there"] = values["weight_map"]["lm_head.weight"]
    index.write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=r"not where it says: not\.there"):
        StoredModel.open(source)
    index.unlink()
    twice = read(source)
    write_shards(source, {"lm_head.weight": twice["lm_head.weight"]}, 1)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight is in .* keep one"):
        StoredModel.open(source)


def test_files_of_other_kinds_are_left_out_with_a_word(tmp_path: Path) -> None:
    source = with_heads(tmp_path / "m")
    (source / "pytorch_model.bin").write_bytes(b"old")
    (source / "original").mkdir()
    (source / "LICENSE").write_text("free")
    report = strip(source, tmp_path / "plain")
    assert "not copied from m: original, pytorch_model.bin" in report.notes
    assert (tmp_path / "plain" / "LICENSE").read_text() == "free"


def test_memory_holds_two_shards_at_most(tmp_path: Path) -> None:
    """Eight shards of 24 MB, one of them rewritten and read back: the process grows by less than two."""
    source, size = tmp_path / "m", 24 * 2**20
    with_heads(source)
    for file in source.glob("*.safetensors"):
        file.unlink()
    parts = [{f"model.layers.{k}.big.weight": torch.zeros(3, size // 12)} for k in range(2)]
    parts += [{f"model.extra.{k}.weight": torch.zeros(3, size // 12)} for k in range(6)]
    parts[3] |= {f"{NAME}eh_proj.weight": torch.zeros(64, 128)}
    weight_map = {}
    for number, part in enumerate(parts):
        save_file(part, source / f"model-{number}.safetensors", metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, f"model-{number}.safetensors")
    (source / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    code = (
        "import sys; from foretell.convert.strip import strip; size = lambda what: 1024 * int(next(line.split()[1] "
        "for line in open('/proc/self/status') if line.startswith(what))); before = size('VmRSS'); "
        "strip(*sys.argv[1:], reload=False); print(size('VmHWM') - before)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, source, tmp_path / "plain"], capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) < 2 * size


def edit(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]], **config: object) -> Path:
    """A folder of one file with other tensors and settings."""
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config_of(folder) | config))
    return folder


def test_heads_that_are_not_whole_are_not_grafted(tmp_path: Path) -> None:
    """C11: a part is missing, numbers are none, the config alone knows a module, experts are more."""
    plain = write(tiny_deepseek_v3(), tmp_path / "plain")
    name = f"{NAME}eh_proj.weight"
    damages = {
        "eh_proj of module 1": lambda f: edit(f, lambda t: {n: x for n, x in t.items() if n != name}),
        "NaN or infinite values in": lambda f: edit(f, lambda t: t | {name: torch.full((64, 128), torch.nan)}),
        "2 modules announced, 1 found": lambda f: edit(f, dict, num_nextn_predict_layers=2),
        "n_routed_experts 8 .here 4.": lambda f: edit(f, dict, n_routed_experts=8),
    }
    for number, (problem, damage) in enumerate(damages.items()):
        donor = damage(with_heads(tmp_path / f"m{number}"))
        with pytest.raises(CheckpointError, match=problem):
            graft(plain, donor, tmp_path / "o")
        assert not (tmp_path / "o").exists()


def test_layers_of_the_trunk_are_no_heads(tmp_path: Path) -> None:
    """A config that counts too few layers must not cost the rest of them."""
    folder = edit(write(tiny_llama(), tmp_path / "m"), dict, num_hidden_layers=1)
    with pytest.raises(CheckpointError, match="config says 1 layers, and the files hold more"):
        strip(folder, tmp_path / "plain")


def test_what_came_while_it_worked_is_kept(tmp_path: Path) -> None:
    """Hours may lie between the first look at the target and the end."""
    source = with_heads(tmp_path / "m", 2)

    def comes(stage: str, done: int, total: int) -> None:
        (tmp_path / "plain").mkdir(exist_ok=True)
        (tmp_path / "plain" / "thesis.txt").write_text("years")

    with pytest.raises(CheckpointError, match="thesis.txt"):
        strip(source, tmp_path / "plain", on_progress=comes)
    assert (tmp_path / "plain" / "thesis.txt").read_text() == "years"


def test_a_link_as_target_is_followed(tmp_path: Path) -> None:
    source = with_heads(tmp_path / "m")
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    strip(source, tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "disk" / "config.json").is_file()


def test_settings_that_a_config_leaves_to_its_class_are_no_misfit(tmp_path: Path) -> None:
    """Released configs say less than what save_pretrained writes out."""
    source = with_heads(tmp_path / "m")
    strip(source, tmp_path / "tuned")
    config = config_of(source)
    for key in ("num_key_value_heads", "v_head_dim", "kv_lora_rank"):
        del config[key]
    (source / "config.json").write_text(json.dumps(config))
    graft(tmp_path / "tuned", source, tmp_path / "out")
    assert same(read(tmp_path / "out"), read(source))
