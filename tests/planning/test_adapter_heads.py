"""Heads of adapters, of every kind: parameters, bytes, FLOPs and memory, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from foretell.checkpoints.adapter import save_adapter
from foretell.config import HeadsConfig
from foretell.errors import UsageError
from foretell.models.build import build_heads
from foretell.models.trunk import Trunk
from foretell.planning.adapter_heads import with_adapter
from foretell.planning.hardware import HARDWARE
from foretell.planning.model import Linear
from foretell.planning.open_model import open_model
from foretell.planning.plan import make_plan
from foretell.planning.roofline import Machine, Roofline
from tests import fixtures
from tests.docs.conftest import ROOT
from tests.planning.models import preset


def test_an_adapter_brings_its_own_sizes() -> None:
    own = preset("smollm2-135m")
    model = with_adapter(own, str(ROOT / "adapters/smollm2-135m-instruct"))
    assert model.heads.stack.output == 8192 * 576 and model.heads.draft_vocab == 8192
    assert model.heads.parameters == own.heads.parameters  # one layer of the trunk's kind, and a projection
    with pytest.raises(UsageError, match=r"was made for SmolLM2.*not for smollm2-360m"):
        with_adapter(preset("smollm2-360m"), str(ROOT / "adapters/smollm2-135m-instruct"))


ONE_LAYER = 2 * 576 * 576 + 2 * 192 * 576 + 3 * 1536 * 576 + 2 * 576
"""SmolLM2-135M's: q and o, k and v, three of the MLP, two norms."""


def test_medusa_heads_of_an_adapter() -> None:
    """A residual block with its bias, and an output matrix of 8,192 rows, at every depth; nothing is kept of a row."""
    model = with_adapter(preset("smollm2-135m"), str(ROOT / "adapters/smollm2-135m-instruct-medusa"))
    heads, block, output = model.heads, 576 * 576 + 576, 8192 * 576
    assert (heads.parameters, heads.stack.dense, heads.stack.output) == (block + output, block, output)
    assert (heads.kind, heads.num_modules(3), heads.max_depth, heads.draft_vocab) == ("medusa", 3, 3, 8192)
    assert heads.linears == (Linear(576, 576, 1),) and heads.cache.row_numbers(1000) == 0 and not heads.attends
    roofline = Roofline(model, Machine(HARDWARE["cpu"]), 100)
    first, second = roofline.draft_levels(batch=2, depth=2, num_true=1.7, width=3.0)
    assert first == second  # a guess for a row, whatever was accepted and however wide the tree is
    assert {work.name: (work.num_bytes, work.flops) for work in first} == {
        "dense": (2 * block, 2 * block * 2),
        "experts": (0, 0),
        "attention": (0, 0),
        "output": (2 * output, 2 * output * 2),
    }
    memory = make_plan(roofline, roofline, 1, 3).memory
    assert memory.heads == 2 * 3 * (block + output) and memory.cache_per_token == 2 * 30 * 2 * 192


def test_parallel_heads_of_an_adapter() -> None:
    """A layer and its final norm at every depth; each reads all that is new, keeps it, and guesses from the newest."""
    model = with_adapter(preset("smollm2-135m"), str(ROOT / "adapters/smollm2-135m-instruct-parallel"))
    heads, output = model.heads, 8192 * 576
    module = ONE_LAYER + 576
    assert (heads.parameters, heads.stack.dense, heads.stack.output) == (module, module, output)
    assert (heads.kind, heads.num_modules(2), heads.max_depth) == ("parallel", 2, 3) and heads.attends
    assert heads.linears == (Linear(1536, 576, 2), Linear(576, 1536, 1), Linear(576, 576, 2), Linear(192, 576, 2))
    roofline = Roofline(model, Machine(HARDWARE["cpu"]), 100)
    first, second = roofline.draft_levels(batch=2, depth=2, num_true=1.5, width=3.0)
    assert first == second
    assert {work.name: (work.num_bytes, work.flops) for work in first} == {
        "dense": (2 * module, 2 * module * 3),
        "experts": (0, 0),
        "attention": (2 * (100 + 1.5) * 2 * 192 * 2, 3 * 4 * 9 * 64 * 100),
        "output": (2 * output, 2 * output * 2),
    }
    memory = make_plan(roofline, roofline, 1, 3).memory
    assert memory.heads == 2 * 3 * module and memory.cache_per_token == 2 * (30 + 3) * 2 * 192


def test_linear_parallel_heads_with_output_matrices_of_their_own(tmp_path: Path) -> None:
    trunk = Trunk(fixtures.tiny_llama())
    config = HeadsConfig(kind="parallel", block="linear", num_depths=2, own_output=True)
    save_adapter(build_heads(trunk, config), tmp_path / "a")
    fixtures.tiny_llama().save_pretrained(tmp_path / "m")
    heads = with_adapter(open_model(str(tmp_path / "m")), str(tmp_path / "a")).heads
    assert (heads.stack.dense, heads.stack.output) == (64 * 64 + 64, 260 * 64)
    assert heads.parameters == 64 * 64 + 64 + 260 * 64 and not heads.attends and heads.num_read(1, 5.0, 1.0) == 1


def test_linear_layers_of_an_adapter_are_its_own() -> None:
    own = preset("smollm2-135m").heads.linears
    with_heads = with_adapter(preset("smollm2-135m"), str(ROOT / "adapters/smollm2-135m-instruct-distinct")).heads
    assert sorted(own, key=str) == sorted(with_heads.linears, key=str) and with_heads.distinct


META = ("attention.wq", "attention.wk", "attention.wv", "attention.wo", "feed_forward.w1", "feed_forward.w2")
META += ("feed_forward.w3", "attention_norm", "ffn_norm")
SHAPES = ((64, 64), (32, 64), (32, 64), (64, 64), (96, 64), (64, 96), (96, 64), (64,), (64,))
BLOCK = {"linear.weight": (64, 64), "linear.bias": (64,)}


@pytest.mark.parametrize(
    ("config", "stored"),
    [
        (
            HeadsConfig(kind="parallel", num_depths=3, hidden_source="below", final_norm="trunk"),
            {f"extra_heads.{{k}}.{name}.weight": shape for name, shape in zip(META, SHAPES, strict=True)},
        ),
        (
            HeadsConfig(kind="medusa", num_depths=3, num_res_blocks=2),
            {f"medusa_head.{{k}}.{j}.{name}": shape for j in (0, 1) for name, shape in BLOCK.items()}
            | {"medusa_head.{k}.2.weight": (260, 64)},
        ),
    ],
)
def test_native_heads_are_planned_as_an_adapter_of_their_kind(
    config: HeadsConfig, stored: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    """In Meta's and Medusa's layout, in the trunk's own file: the same sizes, costs and limits."""
    trunk = fixtures.tiny_llama()
    save_adapter(build_heads(Trunk(trunk), config), tmp_path / "a")
    for name in ("plain", "native"):
        trunk.save_pretrained(tmp_path / name)
    file = tmp_path / "native" / "model.safetensors"
    heads = {name.format(k=k): torch.zeros(shape) for k in range(3) for name, shape in stored.items()}
    save_file(load_file(file) | heads, file, metadata={"format": "pt"})
    adapted = with_adapter(open_model(str(tmp_path / "plain")), str(tmp_path / "a"))
    native = open_model(str(tmp_path / "native"))
    assert native.heads.origin == "3 native modules" and native.heads.config == config
    assert native.parameters == adapted.parameters and native.linears == adapted.linears
    assert native.with_heads(replace(native.heads, origin="")) == replace(
        adapted, name="native", heads=replace(adapted.heads, origin="")
    )
    plans = [make_plan(Roofline(m, Machine(HARDWARE["cpu"]), 64), Roofline(m, Machine(HARDWARE["cpu"]), 64), 2, 3)
             for m in (native, adapted)]  # fmt: skip
    assert plans[0] == plans[1]
