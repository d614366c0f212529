import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from foretell.checkpoints.adapter import save_adapter
from foretell.checkpoints.model_folder import save_model
from foretell.checkpoints.native import claimed_heads, native_tensors
from foretell.errors import CheckpointError
from foretell.inspection.inspect import inspect_checkpoint
from foretell.models.trunk import Trunk
from tests.fixtures import random_heads, tiny_deepseek_v3, tiny_gemma, tiny_llama

MTP = {
    "model.layers.2.eh_proj.weight": torch.zeros(64, 128),
    "model.layers.2.enorm.weight": torch.ones(64),
    "model.layers.2.hnorm.weight": torch.ones(64),
    "model.layers.2.shared_head.norm.weight": torch.ones(64),
    "model.layers.2.self_attn.o_proj.weight": torch.zeros(64, 48),
}


def test_an_adapter(tmp_path: Path) -> None:
    heads = random_heads(Trunk(tiny_llama(), name="tiny"), draft_ids=range(90), extra={"draft_coverage": 0.9})
    save_adapter(heads, tmp_path, {"steps": 5})
    found = inspect_checkpoint(tmp_path)
    assert (found.kind, found.max_depth, found.num_tensors) == ("adapter", 3, 14)
    assert found.num_parameters == sum(parameter.numel() for parameter in heads.parameters())
    assert found.dtypes == {"BF16": found.num_parameters}
    assert found.num_bytes == (tmp_path / "mtp.safetensors").stat().st_size
    assert found.made_for and found.made_for["name"] == "tiny"
    assert (found.draft_vocab, found.training) == ({"size": 90, "coverage": 0.9}, {"steps": 5})
    assert found.problems == [] and found.costs and found.costs.trunk is None
    [cost] = found.costs.depths
    assert cost.parameters == found.num_parameters and cost.active == found.num_parameters + 90 * 64
    plain = json.loads(json.dumps(found.as_dict()))
    assert plain["heads"]["concat"] == "embedding_first" and "claimed_heads" not in plain


@pytest.mark.parametrize("kind", ["parallel", "medusa"])
def test_an_adapter_of_another_kind_shows_the_settings_of_its_kind(tmp_path: Path, kind: str) -> None:
    save_adapter(random_heads(Trunk(tiny_llama()), kind=kind, num_depths=4), tmp_path)
    found = inspect_checkpoint(tmp_path)
    assert found.heads and (found.heads["kind"], found.max_depth, found.problems) == (kind, 4, [])
    assert not {"concat", "feedback"} & set(found.heads)
    assert ("block" in found.heads, "num_res_blocks" in found.heads) == (kind == "parallel", kind == "medusa")


@pytest.mark.parametrize("tied", [True, False])
def test_a_trunk(tmp_path: Path, tied: bool) -> None:
    model = tiny_llama(tie_word_embeddings=tied)
    model.bfloat16().save_pretrained(tmp_path)
    found = inspect_checkpoint(tmp_path)
    assert (found.kind, found.architecture, found.tied) == ("trunk", "LlamaForCausalLM", tied)
    assert (found.num_layers, found.hidden_size, found.vocab_size) == (2, 64, 260)
    assert found.num_parameters == sum(parameter.numel() for parameter in model.parameters())
    assert found.dtypes == {"BF16": found.num_parameters}
    assert (found.claimed_heads, found.mtp_tensors, found.problems) == (0, [], [])


def test_a_trunk_in_shards(tmp_path: Path) -> None:
    model = tiny_gemma()
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert not (tmp_path / "model.safetensors").exists()
    found = inspect_checkpoint(tmp_path)
    assert found.num_parameters == sum(parameter.numel() for parameter in model.parameters())
    assert found.num_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    next(tmp_path.glob("*.safetensors")).unlink()
    with pytest.raises(CheckpointError, match=r"no such file: model-0000\d-of-00004.*1 missing"):
        inspect_checkpoint(tmp_path)


def test_heads_that_config_and_files_disagree_on(tmp_path: Path) -> None:
    """The usual load and save drops the tensors and keeps the announcement."""
    model = tiny_deepseek_v3()
    model.config.num_nextn_predict_layers = 1
    model.save_pretrained(tmp_path)
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    found = inspect_checkpoint(tmp_path)
    assert (found.claimed_heads, found.num_modules, found.mtp_tensors) == (1, 0, [])
    assert found.family == "deepseek" and "missing weights" in found.engines["vLLM"]
    assert len(found.problems) == 1 and "no MTP tensor is in its files" in found.problems[0]
    assert "take the original checkpoint" in found.problems[0]

    save_file(load_file(weights) | MTP, weights, metadata={"format": "pt"})
    found = inspect_checkpoint(tmp_path)
    assert (found.claimed_heads, found.num_modules, found.mtp_tensors, found.problems) == (1, 1, sorted(MTP), [])
    assert (found.family, found.heads and found.heads["hidden_source"]) == ("deepseek", "post")

    values = json.loads(config.read_text())
    config.write_text(json.dumps(values | {"num_nextn_predict_layers": 2}))
    assert "the files hold tensors of 1" in inspect_checkpoint(tmp_path).problems[0]
    config.write_text(json.dumps({key: v for key, v in values.items() if key != "num_nextn_predict_layers"}))
    found = inspect_checkpoint(tmp_path)
    assert found.claimed_heads == 0 and "config claims no native MTP layer" in found.problems[0]


def test_an_untied_trunk_without_an_output_head(tmp_path: Path) -> None:
    tiny_llama().save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    save_file({name: x for name, x in load_file(weights).items() if name != "lm_head.weight"}, weights)
    assert "not tied to the embedding, but none is in the files" in inspect_checkpoint(tmp_path).problems[0]


def test_a_model_folder_of_ours_shows_trunk_and_heads(tmp_path: Path) -> None:
    trunk = Trunk(tiny_llama(), name="tiny")
    save_model(trunk, random_heads(trunk, num_depths=2, num_modules=2), tmp_path, dtype=torch.bfloat16)
    found = inspect_checkpoint(tmp_path)
    assert (found.kind, found.num_modules, found.problems) == ("trunk", 0, [])
    assert found.num_parameters == sum(parameter.numel() for parameter in trunk.model.parameters())
    adapter = found.adapter
    assert adapter and (adapter.kind, adapter.num_modules, adapter.problems) == ("adapter", 2, [])
    assert found.costs and found.costs.trunk and adapter.costs and adapter.costs.trunk == found.costs.trunk
    for depth in adapter.costs.depths:
        assert depth.share_of_trunk == depth.active / found.costs.trunk.active
    assert found.as_dict()["adapter"]["made_for"]["name"] == "tiny"
    assert "does not see the adapter" in found.engines["vLLM"] and "convert export" in adapter.engines["vLLM"]


def test_parameters_are_those_of_the_modules(tmp_path: Path) -> None:
    """Costs count what the model classes hold: a trunk with experts, and heads of its last layer's kind."""
    model = tiny_deepseek_v3()
    model.save_pretrained(tmp_path)
    costs = inspect_checkpoint(tmp_path).costs
    assert costs and costs.trunk and costs.depths == []
    assert costs.trunk.parameters == sum(tensor.numel() for tensor in model.state_dict().values())
    experts = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
    embedding = model.get_input_embeddings().weight.numel()
    assert costs.trunk.active == costs.trunk.parameters - embedding - experts // 2  # two of four
    assert costs.trunk.flops_per_token == 2 * costs.trunk.active


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    tiny_llama().save_pretrained(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").rename(tmp_path / "m" / "pytorch_model.bin")
    for path, problem in (
        (tmp_path / "m", r"no \*.safetensors file in it .*pytorch_model.bin"),
        (tmp_path / "nowhere", "no such file"),
        (tmp_path, "no config.json"),
        ("owner/name", "only local checkpoints"),
    ):
        with pytest.raises(CheckpointError, match=problem):
            inspect_checkpoint(path)


def test_names_of_native_heads() -> None:
    ours = ["mtp.fc.weight", "model.mtp_layers.0.input_proj.weight", "model.mtp.layers.0.enorm.m", "mtp.layers.0.norm"]
    ours += [
        "model.layers.4.eh_proj.weight",
        "model.language_model.layers.5.enorm.weight",
        "blk.4.nextn.eh_proj.weight",
    ]
    trunk = ["model.layers.3.self_attn.q_proj.weight", "lm_head.weight", "model.norm.weight", "blk.3.attn_q.weight"]
    assert native_tensors(ours + trunk, num_layers=4) == sorted(ours)


def test_claims_of_native_heads() -> None:
    assert claimed_heads({"num_nextn_predict_layers": 0, "text_config": None}).num_layers == 0
    assert claimed_heads({"text_config": {"mtp_num_hidden_layers": 1}}) == (1, "mtp_num_hidden_layers")
    assert claimed_heads({"num_mtp_layers": 3}) == (3, "num_mtp_layers")
