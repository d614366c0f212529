"""Decoders that look like those the kernels know, and compute something else, are found out; so are later changes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import Ministral3Config, Ministral3ForCausalLM
from transformers.models.llama.modeling_llama import LlamaMLP

from foretell.kernels.build import library
from foretell.models import fused_stack
from foretell.models.mtp_model import MTPModel
from foretell.models.packed import pack_linears, unpack_linears
from foretell.models.trunk import Trunk
from tests.fixtures import random_heads, tiny_llama
from tests.models.test_fused_stack import decoded

pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler")
TYPES: list[Any] = [(torch.float32, None), (torch.bfloat16, None), (torch.float32, "int8"), (torch.float32, "int4")]


class Centred(nn.Module):
    """LayerNorm without a bias, which looks like an RMSNorm."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight, self.eps = weight, 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:], self.weight, None, self.eps)


class Weaker(LlamaMLP):
    """As in families that weigh what a layer adds."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.9 * super().forward(x)


def gelu(layer: Any) -> None:
    layer.mlp.act_fn = nn.GELU()


def centre(layer: Any) -> None:
    layer.input_layernorm = Centred(layer.input_layernorm.weight)


def weaken(layer: Any) -> None:
    layer.mlp.__class__ = Weaker


def small_llama(**more: Any) -> Any:
    """With weights as small as those that models are born with, so that what a layer adds is little."""
    model = tiny_llama(**more)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "layers" in name:
                parameter.mul_(0.02 / parameter.std())
    return model


@pytest.mark.parametrize(("dtype", "precision"), TYPES)
@pytest.mark.parametrize("change", [None, gelu, centre, weaken])
def test_other_formulas(change: Callable[[Any], None] | None, dtype: torch.dtype, precision: Any) -> None:
    model = small_llama().to(dtype)
    if change is not None:
        change(model.model.layers[1])
    trunk = Trunk(model)
    pack_linears(trunk, precision)
    assert trunk.fuse() == (change is None)


def test_scores_that_depend_on_the_position() -> None:
    """Ministral 3 scales its queries from ``original_max_position_embeddings`` on."""
    rope = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "llama_4_scaling_beta": 0.5,
        "original_max_position_embeddings": 8,
    }
    config = Ministral3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        rope_parameters=rope,
    )
    trunk = Trunk(Ministral3ForCausalLM(config))
    pack_linears(trunk)
    assert not trunk.fuse()


def test_layers_with_other_keys_than_the_first() -> None:
    """The buffers of a cache are made for all layers alike."""
    model, other = tiny_llama(num_key_value_heads=2), tiny_llama(num_key_value_heads=1)
    model.model.layers[1].self_attn = other.model.layers[1].self_attn
    trunk = Trunk(model)
    pack_linears(trunk)
    assert not trunk.fuse()


def test_copies_of_packed_models() -> None:
    trunk = Trunk(tiny_llama())
    model = MTPModel(trunk, random_heads(trunk, unrolled=True, num_modules=1, num_depths=2))
    model.pack()
    heads: Any = model.heads
    decoded(trunk, [3], [3])
    assert heads.chain is not None
    assert copy.deepcopy(heads).chain is None and copy.deepcopy(model).trunk._run.stack is None
    matrix = trunk.decoder.layers[0].mlp.up_proj.matrix
    again = pickle.loads(pickle.dumps(matrix))
    x = torch.randn(2, matrix.num_in)
    assert torch.equal(again.multiply(x), matrix.multiply(x))


def test_whoever_listens_hears(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks on layers and norms are called in decoding; without them the kernels run again."""
    trunk = Trunk(tiny_llama())
    pack_linears(trunk)
    assert trunk.fuse()
    for part in (trunk.decoder.layers[1], trunk.decoder.layers[0].input_layernorm, trunk.final_norm):
        heard: list[Any] = []
        hook = part.register_forward_hook(lambda *args, into=heard: into.append(args))
        decoded(trunk, [3], [3])
        assert len(heard) == 1
        hook.remove()
        decoded(trunk, [3], [3])
        assert len(heard) == 1


def exchange(trunk: Trunk) -> None:
    unpack_linears(trunk.decoder.layers[1])
    with torch.no_grad():
        trunk.decoder.layers[1].mlp.down_proj.weight.zero_()


def change_gain(trunk: Trunk) -> None:
    with torch.no_grad():
        trunk.decoder.layers[1].input_layernorm.weight.mul_(3)


@pytest.mark.parametrize("change", [exchange, change_gain])
def test_what_was_changed_is_read_anew(change: Callable[[Trunk], None], monkeypatch: pytest.MonkeyPatch) -> None:
    trunk = Trunk(tiny_llama().to(torch.bfloat16))
    pack_linears(trunk)
    assert trunk.fuse()
    before = decoded(trunk, [3], [3])[0].post_BTD
    change(trunk)
    with monkeypatch.context() as patch:
        patch.setattr(fused_stack.FusedStack, "__call__", None)
        after = decoded(trunk, [3], [3])[0].post_BTD
    assert (after - before).abs().max() > 0.1
    assert trunk.fuse() == (change is change_gain)
    assert change is exchange or (decoded(trunk, [3], [3])[0].post_BTD - after).abs().max() < 0.1
