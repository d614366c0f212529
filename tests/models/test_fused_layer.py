"""Layers that run through the kernels compute what their class computes; the others are left alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from foretell.kernels.build import library
from foretell.models import fused_layer
from foretell.models.fused_layer import FusedLayer, fuse_layers, unfuse_layers
from foretell.models.mtp_model import MTPModel
from foretell.models.packed import pack_linears, unpack_linears
from foretell.models.trunk import Trunk
from tests.fixtures import (
    random_heads,
    tiny_gemma,
    tiny_llama,
    tiny_mistral,
    tiny_qwen2,
    tiny_qwen3,
)

pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler")


def fused(module: torch.nn.Module) -> int:
    return sum(isinstance(part, FusedLayer) for part in module.modules())


def states(trunk: Trunk, num_tokens: int) -> torch.Tensor:
    token_ids = torch.arange(num_tokens).unsqueeze(0) % trunk.vocab_size
    with torch.no_grad():
        return trunk.text_states(token_ids, torch.zeros_like(token_ids)).post_BTD


@pytest.mark.parametrize(
    "make",
    [
        tiny_llama,
        lambda: tiny_llama(attention_bias=True, mlp_bias=True),
        lambda: tiny_llama(hidden_size=72, num_attention_heads=3, num_key_value_heads=3, head_dim=24),
        tiny_qwen2,
        tiny_mistral,
    ],
    ids=["llama", "biases", "odd sizes", "qwen2", "mistral"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_states(make: Callable[[], Any], dtype: torch.dtype) -> None:
    """One token, a few, and more than the kernels take; every token's bits are those it has beside others."""
    trunk = Trunk(make().to(dtype))
    plain = {n: states(trunk, n) for n in (1, 7, 40)}
    pack_linears(trunk)
    count = fuse_layers(trunk)
    if dtype == torch.float32:
        assert count == trunk.num_layers == fused(trunk)
    for n, right in plain.items():
        assert (states(trunk, n) - right).abs().max() < (2e-5 if dtype == torch.float32 else 0.1)
    if count:
        assert torch.equal(states(trunk, 7)[:, :1], states(trunk, 1))
    unfuse_layers(trunk)
    unpack_linears(trunk)
    assert fused(trunk) == 0 and torch.equal(states(trunk, 7), plain[7])


@pytest.mark.parametrize("make", [tiny_qwen3, tiny_gemma])
def test_what_computes_something_else_is_left_alone(make: Callable[[], Any]) -> None:
    """Norms on queries and keys; gains stored as offsets from 1, and another activation."""
    trunk = Trunk(make())
    right = states(trunk, 5)
    pack_linears(trunk)
    assert fuse_layers(trunk) == fused(trunk) == 0
    assert (states(trunk, 5) - right).abs().max() < 2e-5


def test_results_decide_not_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Llama whose MLP is scaled has the parts, and gives other states."""
    trunk = Trunk(tiny_llama())
    pack_linears(trunk)
    monkeypatch.setattr(type(trunk.decoder.layers[0].mlp.act_fn), "forward", lambda self, x: torch.relu(x))
    assert fuse_layers(trunk) == fused(trunk) == 0


def test_a_copy_is_the_layer_it_was() -> None:
    """Heads copy a trunk's layer and train it; hooks and weights of the trunk stay where they are."""
    trunk = Trunk(tiny_llama())
    model = MTPModel(trunk, random_heads(trunk))
    own = type(trunk.decoder.layers[0])
    model.pack()
    assert fused(model.heads) == 1 and fused(trunk) == trunk.num_layers
    fresh = copy.deepcopy(trunk.decoder.layers[0])
    assert type(fresh) is own and type(fresh.mlp.up_proj) is torch.nn.Linear
    assert torch.equal(fresh.mlp.up_proj.weight, trunk.decoder.layers[0].mlp.up_proj.weight)
    assert fresh.mlp.up_proj.weight is not trunk.decoder.layers[0].mlp.up_proj.weight
    assert set(trunk.state_dict()) == set(Trunk(tiny_llama()).state_dict())


def test_a_layer_in_training_keeps_its_gradients() -> None:
    trunk = Trunk(tiny_llama())
    pack_linears(trunk)
    fuse_layers(trunk)
    x = torch.randn(1, 3, trunk.hidden_size, requires_grad=True)
    mask = torch.ones(1, 3, 3, dtype=torch.bool).tril()
    layer = trunk.decoder.layers[0]
    assert isinstance(layer, fused_layer.FusedLayer)
    unpack_linears(trunk)
    trunk.states(x, torch.arange(3).unsqueeze(0), mask).post_BTD.sum().backward()
    assert x.grad is not None and x.grad.abs().sum() > 0
