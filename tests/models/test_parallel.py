"""Parallel heads against transformers' own layers, one document at a time."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from foretell.config import HeadsConfig
from foretell.models.build import build_heads
from foretell.models.trunk import Trunk
from tests.fixtures import EOS, FAMILIES, random_heads, tiny_gemma2, tiny_llama
from tests.models.reference import (
    Gradients,
    assert_equal,
    double_trunk,
    doubled,
    gradients,
    packed_loss_and_gradients,
    summed_loss,
    trunk_states,
)

PARALLEL = {"kind": "parallel", "num_depths": 2}
generator = torch.Generator().manual_seed(5)
DOCUMENTS = [torch.randint(0, EOS, (n,), generator=generator) for n in (21, 9)]


def oracle(
    family: str, heads: Any, documents: list[torch.Tensor]
) -> tuple[torch.Tensor, Gradients, Gradients, list[torch.Tensor]]:
    """The same by transformers alone: its model, and a one-layer model of its class for each depth."""
    model = doubled(FAMILIES[family]())
    config, _ = Trunk(FAMILIES[family]()).block_config()
    config._attn_implementation = config._experts_implementation = "eager"
    bodies, parameters = [], {}
    for k, module in enumerate(heads.modules_by_depth):
        body = type(model.model)(config).double().eval()
        body.layers[0] = copy.deepcopy(model.model.layers[-1])  # layer 0 has no experts
        for part in body.layers[0].modules():
            part.config = config
        body.layers[0].load_state_dict(module.layer.state_dict())
        own_norm = heads.config.final_norm == "own"
        body.norm = copy.deepcopy(model.model.norm)
        if own_norm:
            body.norm.load_state_dict(module.norm.state_dict())
        output = model.get_output_embeddings()
        for name, parameter in body.named_parameters():
            if name.startswith("layers.0."):
                parameters[f"modules_by_depth.{k}.layer.{name[9:]}"] = parameter
            elif name.startswith("norm.") and own_norm:
                parameters[f"modules_by_depth.{k}.{name}"] = parameter
        if module.output is not None:
            output = copy.deepcopy(module.output)
            parameters[f"modules_by_depth.{k}.output.weight"] = output.weight
        bodies.append((body, output))
    loss, logits = torch.zeros((), dtype=torch.float64), []
    for document in documents:
        state = trunk_states(model, document.unsqueeze(0))[heads.config.hidden_source]
        of_document = []
        for body, output in bodies:
            found = output(body(inputs_embeds=state, use_cache=False).last_hidden_state[0])
            if cap := getattr(model.config, "final_logit_softcapping", None):
                found = cap * torch.tanh(found / cap)
            of_document.append(found)
        logits.append(of_document)
        loss = loss + summed_loss(of_document, document)
    packed = [torch.cat(parts) for parts in zip(*logits, strict=True)]
    return loss.detach(), gradients(loss, parameters), gradients(loss, dict(model.named_parameters())), packed


@pytest.mark.parametrize("source", ["post", "pre", "below"])
@pytest.mark.parametrize("family", ["llama", "gemma2", "mistral", "glm4_moe", "deepseek_v3"])
def test_states_and_gradients_are_those_of_transformers(family: str, source: str) -> None:
    """Packed documents; every tensor of heads and trunk. The longer document is longer than the sliding window."""
    trunk = double_trunk(FAMILIES[family]())
    heads = random_heads(trunk, hidden_source=source, **PARALLEL).requires_grad_(True)
    loss, heads_gradients, trunk_gradients, logits = packed_loss_and_gradients(heads, DOCUMENTS)
    expected_loss, expected_heads, expected_trunk, expected_logits = oracle(family, heads, DOCUMENTS)
    for found, expected in zip(logits, expected_logits, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(loss, expected_loss, rtol=1e-6, atol=0)
    assert_equal(heads_gradients, expected_heads, rtol=1e-5)
    assert_equal(trunk_gradients, expected_trunk, rtol=1e-5)
    assert all(grad.any() for grad in heads_gradients.values())
    last = trunk.config.num_hidden_layers - 1
    reaches_last = any(grad.any() for name, grad in trunk_gradients.items() if f"layers.{last}." in name)
    assert reaches_last == (source != "below")
    assert any(grad.any() for name, grad in trunk_gradients.items() if "layers.0." in name)


@pytest.mark.parametrize("final_norm", ["own", "trunk"])
def test_own_output_and_the_trunks_norm(final_norm: str) -> None:
    """One matrix a depth; a norm that is the trunk's takes no gradient from the heads."""
    trunk = double_trunk(tiny_llama())
    heads = random_heads(trunk, own_output=True, final_norm=final_norm, **PARALLEL).requires_grad_(True)
    _, heads_gradients, trunk_gradients, logits = packed_loss_and_gradients(heads, DOCUMENTS)
    _, expected_heads, expected_trunk, expected_logits = oracle("llama", heads, DOCUMENTS)
    for found, expected in zip(logits, expected_logits, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert_equal(heads_gradients, expected_heads, rtol=1e-5)
    assert_equal(trunk_gradients, expected_trunk, rtol=1e-5)
    assert all(grad.any() for grad in heads_gradients.values())
    assert not trunk_gradients["lm_head.weight"].any()


def test_a_linear_head_is_a_matrix_and_a_norm() -> None:
    trunk = double_trunk(tiny_llama())
    heads = random_heads(trunk, block="linear", hidden_source="below", **PARALLEL).requires_grad_(True)
    loss, heads_gradients, trunk_gradients, _ = packed_loss_and_gradients(heads, DOCUMENTS)
    model = tiny_llama().double()
    parameters = {name: p.detach().clone().requires_grad_() for name, p in heads.named_parameters()}
    expected = torch.zeros((), dtype=torch.float64)
    for document in DOCUMENTS:
        state = trunk_states(model, document.unsqueeze(0))["below"][0]
        logits = []
        for k in range(2):
            mapped = state @ parameters[f"modules_by_depth.{k}.linear.weight"].T
            normed = mapped * (mapped.float().pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps).rsqrt()
            logits.append(model.lm_head(normed * parameters[f"modules_by_depth.{k}.norm.weight"]))
        expected = expected + summed_loss(logits, document)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=0)
    assert_equal(heads_gradients, gradients(expected, parameters), rtol=1e-5)
    assert_equal(trunk_gradients, gradients(expected, dict(model.named_parameters())), rtol=1e-5)
    assert all(grad.any() for grad in heads_gradients.values())


@pytest.mark.parametrize("family", ["llama", "gemma2", "glm4_moe", "deepseek_v3"])
@torch.no_grad()
def test_fresh_heads_beside_the_last_layer_say_what_the_trunk_says(family: str) -> None:
    trunk = Trunk(FAMILIES[family]())
    ids, doc_ids = DOCUMENTS[0].unsqueeze(0), torch.zeros(1, 21, dtype=torch.long)
    states = trunk.text_states(ids, doc_ids)
    for own_output in (False, True):
        heads = build_heads(trunk, HeadsConfig(hidden_source="below", own_output=own_output, **PARALLEL))
        found = heads.training_states(trunk.text_states(ids, doc_ids), trunk.embed(ids), doc_ids)
        assert all(torch.equal(state, states.post_BTD) for state in found)
        assert torch.equal(heads.project(found[1], 2), trunk.project(states.post_BTD))


@torch.no_grad()
def test_fresh_linear_heads_read_the_trunks_state() -> None:
    trunk = Trunk(tiny_llama())
    heads = build_heads(trunk, HeadsConfig(block="linear", hidden_source="pre", **PARALLEL))
    ids, doc_ids = DOCUMENTS[0].unsqueeze(0), torch.zeros(1, 21, dtype=torch.long)
    states = trunk.text_states(ids, doc_ids)
    torch.testing.assert_close(heads.training_states(states, trunk.embed(ids), doc_ids)[1], states.post_BTD)


def test_heads_own_their_tensors_and_hold_no_copy_of_the_trunk() -> None:
    """Hooks of the trunk's runner on its last layer are not copied with the layer."""
    trunk = Trunk(tiny_gemma2())
    build_heads(trunk, HeadsConfig(hidden_source="below", **PARALLEL))  # the hook is there from now on
    heads = build_heads(trunk, HeadsConfig(hidden_source="below", own_output=True, **PARALLEL))
    assert len(trunk.decoder.layers[-1]._forward_pre_hooks) == 1
    storages = {parameter.untyped_storage().data_ptr() for parameter in trunk.parameters()}
    own = [parameter.untyped_storage().data_ptr() for parameter in heads.parameters()]
    assert len(set(own)) == len(own) and not storages & set(own)
    for module in heads.modules_by_depth:
        assert not module.layer._forward_pre_hooks and not module.layer._forward_pre_hooks_with_kwargs
