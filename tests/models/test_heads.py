"""What all kinds of heads have in common."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foretell.errors import UsageError
from foretell.models.decoder import States
from foretell.models.trunk import Trunk
from tests.fixtures import EOS, random_heads, tiny_glm4_moe, tiny_gpt2, tiny_llama
from tests.models.reference import gradients, heads_logits, summed_loss

KINDS: dict[str, dict[str, Any]] = {
    "unrolled": {"num_depths": 3},
    "distinct": {"unrolled": False},
    "parallel": {"kind": "parallel", "hidden_source": "below"},
    "linear": {"kind": "parallel", "block": "linear", "final_norm": "trunk"},
    "medusa": {"kind": "medusa", "num_res_blocks": 2},
}
IDS = torch.randint(0, EOS, (1, 20), generator=torch.Generator().manual_seed(2))
DOC_IDS = torch.tensor([[0] * 13 + [1] * 7])


@pytest.mark.parametrize("kind", KINDS)
def test_checkpointing_changes_neither_loss_nor_gradients(kind: str) -> None:
    """Trunk included, bit for bit; every module runs once more, in the backward pass."""
    trunk = Trunk(tiny_glm4_moe()).requires_grad_(True)
    heads = random_heads(trunk, **KINDS[kind]).requires_grad_(True)
    parameters = dict(heads.named_parameters()) | {f"trunk.{n}": p for n, p in trunk.named_parameters()}
    calls: list[int] = []
    for module in heads.modules_by_depth:
        module.register_forward_pre_hook(lambda *_: calls.append(1))

    def run() -> tuple[torch.Tensor, dict[str, torch.Tensor], int]:
        calls.clear()
        logits = heads_logits(heads, IDS, DOC_IDS)
        loss = summed_loss(logits, IDS[0])
        forward_only = len(calls)
        found = gradients(loss, parameters)
        assert forward_only == 3
        return loss, found, len(calls)

    loss, expected, num_calls = run()
    heads.checkpointing = True
    again, found, num_calls_again = run()
    assert torch.equal(loss, again)
    assert all(torch.equal(found[name], grad) for name, grad in expected.items())
    assert all(expected[name].any() for name, _ in heads.named_parameters())
    assert (num_calls, num_calls_again) == (3, 6)
    with torch.no_grad():
        heads_logits(heads, IDS, DOC_IDS)
    assert len(calls) == 9


@pytest.mark.parametrize("kind", KINDS)
def test_output_parameters_are_those_that_project_uses(kind: str) -> None:
    trunk = Trunk(tiny_llama())
    for own_output in (False, True):
        heads = random_heads(trunk, own_output=own_output, **KINDS[kind]).requires_grad_(True)
        for depth in (1, 2, 3):
            loss = heads.project(torch.randn(4, 64), depth).square().sum()
            used = {name for name, grad in gradients(loss, dict(heads.named_parameters())).items() if grad.any()}
            own = heads.output_parameters(depth)
            assert used == {name for name, p in heads.named_parameters() if any(p is q for q in own)}
            assert len(own) == (own_output or kind == "medusa")
        first, second = heads.output_parameters(1), heads.output_parameters(2)
        if first:
            assert (first[0] is second[0]) == (kind in ("unrolled", "distinct"))


def test_what_enters_the_last_layer_is_kept_where_asked_for() -> None:
    """Nothing is kept for other heads; cached states, which lack it, are refused with the way out."""
    trunk = Trunk(tiny_llama())
    random_heads(trunk)
    assert trunk.text_states(IDS, DOC_IDS).below_BTD is None
    heads = random_heads(trunk, kind="parallel", hidden_source="below")
    random_heads(trunk, kind="medusa", hidden_source="below")
    states = trunk.text_states(IDS, DOC_IDS)
    assert len(trunk.decoder.layers[-1]._forward_pre_hooks) == 1
    assert states.below_BTD is not None and heads.trunk_side(states) is states.below_BTD
    assert not torch.allclose(states.below_BTD, states.pre_BTD, atol=1e-2)
    with pytest.raises(UsageError, match="cache_states = false"):
        heads.trunk_side(States(states.pre_BTD, states.post_BTD))
    with pytest.raises(Exception, match="GPT2Model: no list of decoder layers"):
        random_heads(Trunk(tiny_gpt2()), kind="medusa", hidden_source="below")


@pytest.mark.parametrize("kind", ["unrolled", "parallel", "linear"])
def test_a_norm_that_is_the_trunks_follows_it(kind: str) -> None:
    """Also where the trunk is trained; no copy of it is a tensor of the heads, and heads train none of it."""
    trunk = Trunk(tiny_llama()).requires_grad_(True)
    settings = KINDS[kind] | {"final_norm": "trunk"}
    heads = random_heads(trunk, **settings).requires_grad_(True)
    assert not [name for name in heads.state_dict() if name.split(".")[2] == "norm"]
    states, before = States(*torch.randn(3, 1, 20, 64)), None
    for _ in range(2):
        found = heads.training_states(states, trunk.embed(IDS).detach(), DOC_IDS)
        assert before is None or not torch.allclose(found[0], before, atol=1e-3)
        before = found[0].detach()
        grads = gradients(found[0].square().sum(), dict(trunk.named_parameters()))
        assert not any(grad.any() for grad in grads.values())
        with torch.no_grad():
            trunk.final_norm.weight.mul_(2.0)


def test_a_reduced_draft_vocabulary_follows_a_trained_trunk() -> None:
    trunk, ids = Trunk(tiny_llama()), [3, 7, 100]
    heads = random_heads(trunk, draft_ids=ids, kind="parallel")
    states = torch.randn(4, 64)
    frozen = heads.project(states, 1)  # rows of the frozen trunk are kept from now on
    weight = trunk.output_head.weight.requires_grad_(True)
    with torch.no_grad():
        weight.mul_(3.0)
    logits = heads.project(states, 1)
    torch.testing.assert_close(logits, 3 * frozen)
    [grad] = torch.autograd.grad(logits.sum(), [weight])
    assert grad[ids].all() and not grad[4].any()


def test_drafting_reads_a_copy_of_the_output_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gathering the rows of the draft vocabulary anew for every draft made drafting twice as slow."""
    trunk = Trunk(tiny_llama())
    assert trunk.output_head.weight.requires_grad  # as transformers loads it
    heads = random_heads(trunk, draft_ids=[3, 5, 8]).eval()
    states = torch.randn(2, trunk.hidden_size)
    read, copied_rows = [], heads.draft_rows
    monkeypatch.setattr(heads, "draft_rows", lambda: read.append(1) or copied_rows())
    with torch.no_grad():
        torch.testing.assert_close(heads.trunk_draft_logits(states), trunk.project(states)[:, [3, 5, 8]])
        assert read == [1]
        heads.train().trunk_draft_logits(states)  # beside a trunk that trains the copy would fall behind
    assert read == [1]
