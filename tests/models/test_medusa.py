"""Medusa heads against plain matrices."""

from __future__ import annotations

import pytest
import torch

from foretell.config import HeadsConfig
from foretell.models.build import build_heads
from foretell.models.trunk import Trunk
from tests.fixtures import EOS, VOCAB_SIZE, random_heads, tiny_gemma2, tiny_gpt2, tiny_llama
from tests.models.reference import (
    assert_equal,
    double_trunk,
    gradients,
    packed_loss_and_gradients,
    summed_loss,
    trunk_states,
)

MEDUSA = {"kind": "medusa", "num_depths": 3}
generator = torch.Generator().manual_seed(5)
DOCUMENTS = [torch.randint(0, EOS, (n,), generator=generator) for n in (21, 9)]


@pytest.mark.parametrize("source", ["post", "below"])
@pytest.mark.parametrize("num_res_blocks", [1, 3])
def test_states_and_gradients_are_those_of_plain_matrices(num_res_blocks: int, source: str) -> None:
    trunk = double_trunk(tiny_llama())
    heads = random_heads(trunk, num_res_blocks=num_res_blocks, hidden_source=source, **MEDUSA).requires_grad_(True)
    loss, heads_gradients, trunk_gradients, _ = packed_loss_and_gradients(heads, DOCUMENTS)
    model = tiny_llama().double()
    parameters = {name: p.detach().clone().requires_grad_() for name, p in heads.named_parameters()}
    expected = torch.zeros((), dtype=torch.float64)
    for document in DOCUMENTS:
        logits = []
        for k in range(3):
            x = trunk_states(model, document.unsqueeze(0))[source][0]
            for j in range(num_res_blocks):
                name = f"modules_by_depth.{k}.blocks.{j}.linear."
                y = x @ parameters[name + "weight"].T + parameters[name + "bias"]
                x = x + y * y.sigmoid()
            logits.append(x @ parameters[f"modules_by_depth.{k}.output.weight"].T)
        expected = expected + summed_loss(logits, document)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=0)
    assert_equal(heads_gradients, gradients(expected, parameters))
    assert_equal(trunk_gradients, gradients(expected, dict(model.named_parameters())), rtol=1e-5)
    assert all(grad.any() for grad in heads_gradients.values())
    assert not trunk_gradients["lm_head.weight"].any()  # the heads' matrices are copies


def test_fresh_heads_say_what_the_trunk_says() -> None:
    """Residual blocks at zero, the trunk's matrix and its soft cap; every block and every matrix is its own."""
    trunk = Trunk(tiny_gemma2())
    heads = build_heads(trunk, HeadsConfig(num_res_blocks=2, **MEDUSA))
    states = torch.randn(5, 64)
    for depth in (1, 2, 3):
        module = heads.modules_by_depth[depth - 1]
        assert torch.equal(heads.project(module(states), depth), trunk.project(states))
    storages = [p.untyped_storage().data_ptr() for p in (*heads.parameters(), *trunk.parameters())]
    assert len(list(heads.parameters())) == 3 * (2 * 2 + 1)
    assert len(set(storages)) == len(storages)
    assert all(p.requires_grad for p in heads.parameters())


def test_a_reduced_draft_vocabulary_cuts_every_matrix() -> None:
    trunk, ids = Trunk(tiny_llama()), [3, 7, 100, 256]
    heads = build_heads(trunk, HeadsConfig(draft_vocab_size=4, **MEDUSA), torch.tensor(ids))
    states = torch.randn(5, 64)
    for depth in (1, 3):
        torch.testing.assert_close(heads.project(states, depth), trunk.project(states)[:, ids])


def test_a_trunk_without_parts_to_copy_takes_medusa_heads() -> None:
    """GPT-2 has no rotary embedding and no layers under a known name; only the output head is needed."""
    trunk = Trunk(tiny_gpt2())
    heads = random_heads(trunk, **MEDUSA)
    ids = DOCUMENTS[0].unsqueeze(0)
    states = heads.training_states(trunk.text_states(ids, torch.zeros_like(ids)), trunk.embed(ids), ids)
    assert [heads.project(s, k).shape for k, s in enumerate(states, start=1)] == [(1, 21, VOCAB_SIZE)] * 3
