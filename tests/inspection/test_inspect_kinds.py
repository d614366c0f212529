"""Heads without their trunk, drafters of other kinds, GGUF files with heads, damaged folders."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from foretell.checkpoints.files import TensorHeader
from foretell.errors import CheckpointError
from foretell.inspection.inspect import inspect_checkpoint
from tests.checkpoints.family_folders import LOADABLE, finish, not_run, write_random
from tests.inspection.manifests import Headers, bf16, write, write_file
from tests.inspection.test_engines import SIZES, TRUNK, behind, flat, mimo

QWEN = {"architectures": ["Qwen3_5ForCausalLM"], **SIZES, "mtp_num_hidden_layers": 1}


@pytest.mark.parametrize("name", LOADABLE)
def test_every_family_that_loads(tmp_path: Path, name: str) -> None:
    """Folders written by hand: one module, no complaint, costs of what the files hold."""
    family = LOADABLE[name]
    found = inspect_checkpoint(write_random(family, tmp_path))
    assert (found.family, found.num_modules, found.claimed_heads, found.problems) == (
        family.family,
        1,
        int(bool(family.claim)),
        [],
    )
    assert found.costs and found.costs.trunk
    [depth] = found.costs.depths
    assert found.costs.trunk.parameters + depth.parameters == found.num_parameters
    assert found.heads and found.heads["hidden_source"] == family.reads
    assert found.heads["concat"] == ("hidden_first" if family.hidden_first else "embedding_first")
    assert (found.heads["zero_first"], bool(found.heads["centred_norms"])) == (family.zero_first, family.centred)


def test_a_family_that_cannot_be_run_yet(tmp_path: Path) -> None:
    folder = write_random(LOADABLE["hy_v3"], tmp_path)
    assert inspect_checkpoint(folder).blocked == ""
    with not_run("hy_v3", "it is made up"):
        assert inspect_checkpoint(folder).blocked == "it is made up"


def test_heads_whose_attention_is_one_matrix(tmp_path: Path) -> None:
    """MiMo-V2.5 and Pro bear the family's name, and cannot be run as MiMo-V2-Flash is."""
    folder = write_random(LOADABLE["mimo_v2"], tmp_path, 3)
    tensors = load_file(folder / "model.safetensors")
    for at in {name.partition("q_proj")[0] for name in tensors if name.endswith("self_attn.q_proj.weight")}:
        parts = [tensors.pop(f"{at}{part}_proj.weight") for part in "qkv"]
        tensors[f"{at}qkv_proj.weight"] = torch.cat(parts)
    said = {"model_type": "mimo_v2", "architectures": ["MiMoV2ForCausalLM"]}
    found = inspect_checkpoint(finish(folder, tensors, **said))
    assert (found.family, found.num_modules) == ("mimo_v2", 3)
    assert "stored as one matrix (qkv_proj), as in MiMo-V2.5 and Pro" in found.blocked
    assert "does not know this architecture" in found.engines["transformers"]


@pytest.mark.parametrize(
    ("name", "num_modules", "lines"),
    [
        ("mimo_v2", 3, {"vLLM": "first module, on the state after", "SGLang": "all modules", "transformers": "drops"}),
        ("step3p5", 3, {"vLLM": "all 3 modules", "transformers": "does not know this architecture"}),
        ("longcat", 1, {"vLLM": "decodes with the heads", "llama.cpp": "cannot convert it"}),
    ],
)
def test_families_with_layers_of_their_own(tmp_path: Path, name: str, num_modules: int, lines: dict[str, str]) -> None:
    """As they are published, with the copies of the trunk's that they repeat: told apart from what a module costs."""
    folder = write_random(LOADABLE[name], tmp_path, num_modules)
    tensors = load_file(folder / "model.safetensors")
    copies = {"model.mtp.embed_tokens.weight": tensors["model.embed_tokens.weight"]} if name == "longcat" else {}
    found = inspect_checkpoint(finish(folder, tensors | copies))
    assert (found.family, found.num_modules, found.problems, found.blocked) == (name, num_modules, [], "")
    assert found.costs and all((depth.copies > 0) == (name == "longcat") for depth in found.costs.depths)
    assert all(words in found.engines[engine] for engine, words in lines.items())


@pytest.mark.parametrize("key", ["num_experts_per_tok", "moe_top_k"])
def test_steps_experts_are_stacked_under_names_of_their_own(tmp_path: Path, key: str) -> None:
    """Two layers of four, of which a token passes through two."""
    folder = write_random(LOADABLE["step3p5"], tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config[key] = config.pop("num_experts_per_tok")
    (folder / "config.json").write_text(json.dumps(config))
    costs = inspect_checkpoint(folder).costs
    assert costs and costs.trunk
    routed, embedding = 2 * 4 * 3 * 32 * 64, 260 * 64
    assert costs.trunk.active == costs.trunk.parameters - embedding - routed // 2


def test_step_with_images_stops_in_transformers(tmp_path: Path) -> None:
    folder = write_random(LOADABLE["step3p5"], tmp_path)
    config = json.loads((folder / "config.json").read_text())
    nested = {"architectures": ["Step3p7ForConditionalGeneration"], "model_type": "step3p7", "text_config": config}
    (folder / "config.json").write_text(json.dumps(nested))
    found = inspect_checkpoint(folder)
    assert (found.family, found.problems) == ("step3p5", []) and "use_mtp stops" in found.engines["transformers"]


@pytest.mark.parametrize("config", [QWEN, None])
@pytest.mark.parametrize("file", ["model.safetensors", "mtp.safetensors"])
def test_heads_alone(tmp_path: Path, config: dict[str, Any] | None, file: str) -> None:
    """As published for Qwen3.5: fifteen tensors, with or without a config."""
    write(tmp_path, config, flat())
    (tmp_path / "model.safetensors").rename(tmp_path / file)
    found = inspect_checkpoint(tmp_path)
    assert (found.kind, found.family, found.num_modules, found.problems) == (
        "heads",
        "mellum" if not config else "qwen3_5",
        1,
        [],
    )
    assert found.costs and found.costs.trunk is None and len(found.costs.depths) == 1
    assert set(found.engines.values()) == {"cannot run heads without their trunk"}


def test_heads_alone_say_behind_which_layer_they_belong(tmp_path: Path) -> None:
    found = inspect_checkpoint(write(tmp_path, None, behind(2, first=61)))
    assert (found.kind, found.num_layers, found.num_modules, found.problems) == ("heads", 61, 2, [])


def test_heads_of_speculators(tmp_path: Path) -> None:
    names = ("input_proj", "hidden_layernorm", "token_layernorm", "final_layernorm", "self_attn.q_proj")
    config = {"speculators_model_type": "mtp", "transformer_layer_config": SIZES, "speculators_config": {}}
    found = inspect_checkpoint(write(tmp_path, config, bf16({f"mtp_layers.0.{name}.weight": (8, 8) for name in names})))
    assert (found.kind, found.family, found.num_modules, found.problems) == ("heads", "speculators", 1, [])
    assert "stitch" in found.engines["vLLM"] and (found.hidden_size, found.num_layers) == (8, 2)


def test_medusa_in_a_file_of_torchs(tmp_path: Path) -> None:
    """By its name and the archive's list: unpickling could run code."""
    (tmp_path / "config.json").write_text(json.dumps({"medusa_num_heads": 3, "base_model_name_or_path": "vicuna"}))
    file = tmp_path / "medusa_lm_head.pt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"cos\nsystem\n")
        for index in range(9):
            archive.writestr(f"archive/data/{index}", b"0" * 64)
    for path in (tmp_path, file):
        found = inspect_checkpoint(path)
        assert (found.kind, found.family, found.claimed_heads, found.num_tensors) == ("medusa", "medusa", 3, 9)
        assert found.num_bytes == file.stat().st_size
    file.write_bytes(b"\x80\x02 not a zip")
    with pytest.raises(CheckpointError, match="medusa_lm_head.pt: not a zip archive"):
        inspect_checkpoint(tmp_path)


def test_medusa_in_safetensors(tmp_path: Path) -> None:
    shapes: dict[str, tuple[int, ...]] = {}
    for k in range(3):
        shapes |= {f"{k}.0.linear.weight": (8, 8), f"{k}.0.linear.bias": (8,), f"{k}.1.weight": (50, 8)}
    found = inspect_checkpoint(write(tmp_path, {"medusa_num_heads": 3}, bf16(shapes)))
    assert (found.kind, found.family, found.num_modules, found.problems) == ("heads", "medusa", 3, [])
    assert found.costs and found.costs.depths[0].active == 8 * 8 + 8 + 50 * 8


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["fc.weight", "midlayer.self_attn.q_proj.weight", "d2t", "norm.weight"], "EAGLE-3"),
        (["fc.weight", "layers.0.self_attn.q_proj.weight"], "an EAGLE draft head"),
        (["pre_projection.weight", "model.layers.0.self_attn.q_proj.weight"], "Gemma 4"),
    ],
)
def test_other_drafters_are_named(tmp_path: Path, names: list[str], words: str) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}
    found = inspect_checkpoint(write(tmp_path, config, bf16({name: (8, 8) for name in names})))
    assert found.kind == "heads" and words in found.models and "drafts" in found.engines["vLLM"]


@pytest.mark.parametrize(
    ("heads", "config", "problem"),
    [
        (behind(2), {"num_nextn_predict_layers": 1}, r"claims 1 .*, the files hold tensors of 2"),
        ({k: v for k, v in behind().items() if "eh_proj" not in k}, {"num_nextn_predict_layers": 1}, "no eh_proj"),
        (
            {k: v for k, v in behind(2).items() if "layers.3.hnorm" not in k},
            {"num_nextn_predict_layers": 2},
            "module 2",
        ),
        (
            {k: v for k, v in behind(2).items() if "3.self_attn" not in k},
            {"num_nextn_predict_layers": 2},
            "differ in 1",
        ),
        (behind() | mimo(), {"num_nextn_predict_layers": 1}, "no part of"),
        (bf16({"model.layers.2.odd.weight": (8, 8), "mtp.odd.weight": (8, 8)}), {}, "MTP tensors|no part of"),
        ({}, {"num_hidden_layers": 4}, r"says 4 layers, but the files hold no tensor of 2 \(2, 3\)"),
        ({}, {"vocab_size": 60}, r"embed_tokens.weight is \[50, 8\], config says .* \[60, 8\]"),
        ({}, {"hidden_size": -8}, "hidden_size is -8"),
        ({}, {"num_experts_per_tok": "two"}, "num_experts_per_tok is 'two'"),
        ({}, {"architectures": "LlamaForCausalLM"}, "architectures is 'LlamaForCausalLM'; expected a list"),
        ({}, {"layer_types": 3}, "layer_types is 3; expected a list"),
        ({}, {"text_config": []}, r"text_config is \[\]; expected an object"),
    ],
)
def test_disagreements(tmp_path: Path, heads: Headers, config: dict[str, Any], problem: str) -> None:
    found = inspect_checkpoint(
        write(tmp_path, SIZES | {"architectures": ["DeepseekV3ForCausalLM"]} | config, TRUNK | heads)
    )
    assert any(re.search(problem, line) for line in found.problems), found.problems


@pytest.mark.parametrize("value", ["two", -3, 0, None, 2.5, True, [2]])
def test_absurd_layer_counts_are_one_line(tmp_path: Path, value: Any) -> None:
    write(tmp_path, SIZES | {"num_hidden_layers": value}, TRUNK)
    with pytest.raises(CheckpointError, match="config.json: num_hidden_layers is ") as caught:
        inspect_checkpoint(tmp_path)
    assert "\n" not in str(caught.value)


def test_missing_shards_are_named(tmp_path: Path) -> None:
    write(tmp_path, SIZES, TRUNK, num_files=4)
    for number in (1, 3):
        (tmp_path / f"model-{number:05d}-of-00004.safetensors").unlink()
    for has_index in (True, False):
        with pytest.raises(CheckpointError, match="model-00001-of-00004.*model-00003-of-00004.*2 missing"):
            inspect_checkpoint(tmp_path)
        if has_index:
            (tmp_path / "model.safetensors.index.json").unlink()


@pytest.mark.parametrize(
    ("weight_map", "problem"),
    [
        ({"x": "../elsewhere.safetensors"}, "no .* file of this folder; nothing was read"),
        ({"x": "/etc/passwd"}, "no .* file of this folder"),
        ({"x": ["model.safetensors"]}, "no .* file of this folder"),
        ({"x": "model.safetensors"}, "tensors are not where it says"),
        ({}, "no weight_map"),
        ([], "no weight_map"),
    ],
)
def test_an_index_that_is_wrong(tmp_path: Path, weight_map: Any, problem: str) -> None:
    write(tmp_path, SIZES, TRUNK)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(CheckpointError, match=problem) as caught:
        inspect_checkpoint(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_header_that_is_cut_short(tmp_path: Path) -> None:
    write(tmp_path, SIZES, TRUNK)
    file = tmp_path / "model.safetensors"
    for size in (4, 100, file.stat().st_size - 1):
        with file.open("r+b") as opened:
            opened.truncate(size)
        with pytest.raises(CheckpointError, match="model.safetensors: not a readable safetensors file"):
            inspect_checkpoint(tmp_path)
        write(tmp_path, SIZES, TRUNK)


def test_a_stray_file_of_heads_is_said(tmp_path: Path) -> None:
    write(tmp_path, SIZES, TRUNK)
    write_file(tmp_path / "mtp.safetensors", flat())
    assert any("mtp.safetensors lies beside the weights" in line for line in inspect_checkpoint(tmp_path).problems)


def test_torch_is_not_imported(tmp_path: Path) -> None:
    write(tmp_path, SIZES, TRUNK | {"model.layers.0.x.weight_scale": TensorHeader((1,), "F32")})
    code = (
        "import sys; from foretell.inspection.inspect import inspect_checkpoint as i; "
        "from foretell.cli.inspect_screen import screen; screen(i(sys.argv[1])); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
