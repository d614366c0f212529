"""Trunks placed by device_map: on the CPU for real, over two devices with tensors that remember theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from accelerate import dispatch_model

import foretell
from foretell.checkpoints.adapter import load_adapter, save_adapter
from foretell.checkpoints.load import load_trunk
from foretell.checkpoints.placement import Placement
from foretell.errors import UnsupportedModel, UsageError
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from tests.checkpoints.devices import ManyDevices, put
from tests.fixtures import byte_tokenizer, random_heads, tiny_gpt2, tiny_llama

PROMPTS = [[5, 6], [7, 8, 9, 10]]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A tiny llama, and heads for it."""
    trunk = Trunk(tiny_llama(), byte_tokenizer())
    trunk.model.save_pretrained(tmp_path / "trunk")
    save_adapter(random_heads(trunk, num_depths=2), tmp_path / "heads")
    return tmp_path / "trunk", tmp_path / "heads"


def completions(model: MTPModel) -> list[tuple[list[int], list[int]]]:
    """Tokens, and accepted counts by depth, of a greedy batch with drafts."""
    params = foretell.SamplingParams(max_tokens=12)
    done = foretell.Engine(model, max_batch=2).generate(PROMPTS, params, depth=2)
    return [(row.token_ids, row.stats.accepted_per_position) for row in done]


@pytest.mark.parametrize("device_map", ["auto", "cpu", {"": "cpu"}, {"model": "cpu", "lm_head": "cpu"}])
def test_one_device_is_plain_loading(folders: tuple[Path, Path], device_map: Any) -> None:
    model = foretell.load(*folders, device_map=device_map)
    assert completions(model) == completions(foretell.load(*folders))


def test_heads_of_a_trunk_that_moves_its_tensors(folders: tuple[Path, Path]) -> None:
    """A trunk over several devices has a hook in front of every part; its heads are copies, and must have none."""
    plain = foretell.load(*folders, pack=False)
    trunk = transformers.AutoModelForCausalLM.from_pretrained(folders[0])
    parts = ["embed_tokens", "rotary_emb", "layers.0", "layers.1", "norm"]
    dispatch_model(trunk, {"lm_head": "cpu", **{f"model.{part}": "cpu" for part in parts}}, force_hooks=True)
    wrapped = Trunk(trunk, byte_tokenizer())
    model = MTPModel(wrapped, load_adapter(wrapped, folders[1]))
    assert hasattr(trunk.model.layers[1], "_hf_hook") and model.heads is not None
    for module in model.heads.modules_by_depth.modules():
        assert "forward" not in vars(module) and not hasattr(module, "_hf_hook")
    assert completions(model) == completions(plain)


# Two devices on a machine with one (tests/checkpoints/devices.py)

KINDS: dict[str, dict[str, Any]] = {
    "unrolled": {},
    "distinct": {"unrolled": False},
    "draft_ids": {"draft_ids": range(0, 260, 2)},
    "parallel": {"kind": "parallel"},
    "linear": {"kind": "parallel", "block": "linear", "own_output": True},
    "medusa": {"kind": "medusa"},
    "pre": {"hidden_source": "pre", "feedback": "raw"},
    "below": {"kind": "parallel", "hidden_source": "below"},
}


def split_trunk(tied: bool, name: str = "tiny") -> Trunk:
    """First layer, second layer and norm on a device each; a tied output head on the first, another on the last."""
    model = tiny_llama(tie_word_embeddings=tied)
    for part in (model.model.embed_tokens, model.model.rotary_emb, model.model.layers[0]):
        put(part, "cpu:1")
    put(model.model.layers[1], "cpu:2")
    put(model.model.norm, "cpu:3")
    put(model.lm_head, "cpu:1" if tied else "cpu:3")
    return Trunk(model, byte_tokenizer(), name)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_heads_live_where_the_states_come_out(tied: bool, kind: str, tmp_path: Path) -> None:
    """Loaded onto a trunk over two devices, heads draft there, and the texts and drafts are those of one device."""
    whole = Trunk(tiny_llama(tie_word_embeddings=tied), byte_tokenizer(), "tiny")
    save_adapter(random_heads(whole, num_depths=2, **KINDS[kind]), tmp_path)
    expected = completions(MTPModel(whole, load_adapter(whole, tmp_path)))
    with ManyDevices():
        trunk = split_trunk(tied)
        model = MTPModel(trunk, load_adapter(trunk, tmp_path))
        assert model.heads is not None and model.heads.device == torch.device("cpu:3") != trunk.device
        assert {parameter.device for parameter in model.heads.parameters()} == {torch.device("cpu:3")}
        assert completions(model) == expected


def test_tensors_that_do_not_meet_are_noticed() -> None:
    """The stand-in for two devices does what two GPUs would do."""
    with ManyDevices():
        one, two = torch.ones(3, device="cpu:1"), torch.ones(3, device="cpu:2")
        assert (one + two.to("cpu:1")).device == one[torch.tensor([0])].device == torch.device("cpu:1")
        for wrong in (lambda: one + two, lambda: torch.cat([one, two]), lambda: one[two.long()]):
            with pytest.raises(RuntimeError, match="on cpu:1, cpu:2"):
                wrong()


# What is refused


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"device_map": "gpu"}, "device_map 'gpu' is not available here; give auto, balanced"),
        ({"device_map": {"": "cuda:77"}}, r"device_map\[''\] 'cuda:77' is not available here; give cpu"),
        ({"device_map": {"": "disk"}}, "'disk' is not available here"),
        ({"device": "meta", "device_map": "auto"}, "device 'meta' and device_map both say where the weights go"),
        ({"device_map": "auto", "tp_plan": "auto"}, "device_map and tp_plan both say"),
        ({"tp_plan": "colwise"}, "tp_plan 'colwise' is not allowed"),
        ({"tp_plan": "auto"}, "this is only one; start it with torchrun"),
    ],
)
def test_what_cannot_be_is_refused(folders: tuple[Path, Path], options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        load_trunk(folders[0], **options)


def test_weights_left_on_disk_are_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """ "auto" leaves them there where the devices have no room."""
    places = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.layers.0": "cpu", "model.norm": "cpu"}
    places |= {"lm_head": "cpu", "model.layers.1": "disk"}
    model = transformers.AutoModelForCausalLM.from_pretrained(folders[0], device_map=places, offload_folder=tmp_path)
    with pytest.raises(UsageError, match=r"leaves 9 tensors \(such as model.layers.1"):
        Placement.of("cpu", "auto", None).settle(model, "tiny")


def test_a_model_that_is_not_split_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPT-2 has no plan, and would run whole in every process."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UnsupportedModel, match="no tensor parallel plan for GPT2LMHeadModel"):
        Placement.of("cpu", None, "auto").settle(tiny_gpt2(), "tiny")
