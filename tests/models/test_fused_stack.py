"""Decoders that run through the kernels compute what their layers compute; the others are left alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from foretell.decoding.blocks import BlockPool, BlockTable
from foretell.decoding.cache import KVCache
from foretell.decoding.passes import PassInput, PassRow
from foretell.kernels.build import library
from foretell.models import fused_stack
from foretell.models.decoder import States
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


def text(trunk: Trunk, num_tokens: int) -> torch.Tensor:
    return torch.arange(3, 3 + num_tokens).unsqueeze(0) % trunk.vocab_size


def whole(trunk: Trunk, num_tokens: int) -> States:
    """States of a text in one go, without a cache: transformers' own layers, fused or not."""
    token_ids = text(trunk, num_tokens)
    with torch.no_grad():
        return trunk.text_states(token_ids, torch.zeros_like(token_ids))


@torch.inference_mode()
def decoded(trunk: Trunk, lengths: list[int], pieces: list[int]) -> list[States]:
    """States of texts of such ``lengths``, one a row, read together in passes of so many tokens a row."""
    pools = {kind: BlockPool(64) for kind in trunk.kinds}
    cache = KVCache(trunk.kinds, pools, trunk.window)
    tables = [{kind: BlockTable(pool) for kind, pool in pools.items()} for _ in lengths]
    for kind in pools:
        for step in range(40):  # blocks of the rows lie between one another
            for row in tables:
                row[kind].reserve(min(step * 16 + 1, 64))
    found: list[list[States]] = [[] for _ in lengths]
    start = 0
    for piece in pieces:
        rows = [b for b, length in enumerate(lengths) if start < length]
        counts = [min(piece, lengths[b] - start) for b in rows]
        passed = PassInput.build(
            cache, [PassRow.stretch(tables[b], start, n) for b, n in zip(rows, counts, strict=True)], trunk.device
        )
        ids = passed.token_ids(
            [text(trunk, lengths[b])[0, start : start + n].tolist() for b, n in zip(rows, counts, strict=True)]
        )
        states = trunk.states(trunk.embed(ids), passed.positions_BT, passed.masks, cache=cache)
        for b, part in zip(rows, passed.split_states(states), strict=True):
            found[b].append(part)
        start += piece
    joined = []
    for parts in found:
        below = [part.below_BTD for part in parts if part.below_BTD is not None]
        joined.append(
            States(
                torch.cat([part.pre_BTD for part in parts]),
                torch.cat([part.post_BTD for part in parts]),
                torch.cat(below) if below else None,
            )
        )
    return joined


KINDS: dict[str, Callable[[], Any]] = {
    "llama": tiny_llama,
    "biases": lambda: tiny_llama(attention_bias=True, mlp_bias=True),
    "odd sizes": lambda: tiny_llama(hidden_size=72, num_attention_heads=3, num_key_value_heads=3, head_dim=24),
    "qwen2": tiny_qwen2,
    "qwen3": tiny_qwen3,
    "mistral": tiny_mistral,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_the_same_states(make: Callable[[], Any], dtype: torch.dtype) -> None:
    """Rows of different length, read in pieces: what enters the last layer, what it gives, and what the norm makes."""
    trunk = Trunk(make().to(dtype))
    trunk.keep_below()
    lengths = [11, 7, 20]
    right = [whole(trunk, length) for length in lengths]
    pack_linears(trunk)
    assert trunk.fuse()
    for pieces in ([5, 1, 1, 4, 9], [20]):
        for row, states in zip(decoded(trunk, lengths, pieces), right, strict=True):
            for ours, theirs in zip(row, states, strict=True):
                assert ours.dtype == dtype
                assert (ours - theirs[0]).abs().max() < (2e-5 if dtype == torch.float32 else 0.1)


@pytest.mark.parametrize("precision", [None, "int8", "int4"])
def test_the_same_bits_alone_and_beside_others(precision: Any) -> None:
    trunk = Trunk(tiny_llama())
    pack_linears(trunk, precision)
    assert trunk.fuse()
    [alone] = decoded(trunk, [9], [4] + [1] * 5)
    beside = decoded(trunk, [15, 9, 3], [2, 3, 10])[1]
    assert torch.equal(alone.pre_BTD, beside.pre_BTD) and torch.equal(alone.post_BTD, beside.post_BTD)


def test_what_computes_something_else_is_left_alone() -> None:
    """Gains stored as offsets from 1, and another activation."""
    trunk = Trunk(tiny_gemma())
    right = whole(trunk, 5).post_BTD[0]
    pack_linears(trunk)
    assert not trunk.fuse()
    assert (decoded(trunk, [5], [5])[0].post_BTD - right).abs().max() < 2e-5


def test_results_decide_not_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Llamas with another activation, or whose decoder does more than its layers, have the parts."""
    trunk = Trunk(tiny_llama())
    pack_linears(trunk)
    with monkeypatch.context() as patch:
        patch.setattr(type(trunk.decoder.layers[0].mlp.act_fn), "forward", lambda self, x: torch.relu(x))
        assert not trunk.fuse()
    decoder = type(trunk.decoder)
    own = decoder.forward
    with monkeypatch.context() as patch:
        patch.setattr(
            decoder, "forward", lambda self, inputs_embeds, **more: own(self, inputs_embeds=2 * inputs_embeds, **more)
        )
        assert not trunk.fuse()
    assert trunk.fuse()


def test_a_copy_is_not_fused() -> None:
    """Heads copy a trunk's layer and train it; and what was unpacked again runs as transformers has it."""
    trunk = Trunk(tiny_llama())
    model = MTPModel(trunk, random_heads(trunk))
    model.pack()
    fresh = copy.deepcopy(trunk.decoder.layers[0])
    assert type(fresh.mlp.up_proj) is torch.nn.Linear
    assert torch.equal(fresh.mlp.up_proj.weight, trunk.decoder.layers[0].mlp.up_proj.weight)
    assert fresh.mlp.up_proj.weight is not trunk.decoder.layers[0].mlp.up_proj.weight
    assert set(trunk.state_dict()) == set(Trunk(tiny_llama()).state_dict())


def test_unpacked_weights_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    trunk = Trunk(tiny_llama())
    pack_linears(trunk)
    assert trunk.fuse()
    unpack_linears(trunk)
    monkeypatch.setattr(fused_stack.FusedStack, "__call__", None)
    with torch.no_grad():
        trunk.decoder.layers[1].mlp.down_proj.weight.zero_()
    right = whole(trunk, 5).post_BTD[0]
    assert (decoded(trunk, [5], [5])[0].post_BTD - right).abs().max() < 2e-5
