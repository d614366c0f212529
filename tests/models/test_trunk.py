from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from foretell.errors import UnsupportedModel
from foretell.models.decoder import document_positions
from foretell.models.trunk import Trunk
from tests.fixtures import EOS, FAMILIES, encode, script_trunk, tiny_llama, tiny_qwen3_next

Build = Callable[..., Any]


@pytest.fixture(params=sorted(FAMILIES))
def build(request: pytest.FixtureRequest) -> Build:
    return FAMILIES[request.param]


def token_ids(num_rows: int, num_tokens: int) -> torch.Tensor:
    return torch.randint(0, EOS, (num_rows, num_tokens), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_logits_are_the_models_own(build: Build) -> None:
    """40 tokens: more than the sliding window of the families that have one."""
    ids = token_ids(2, 40)
    expected = build()(input_ids=ids, use_cache=False).logits  # transformers' own attention and masks
    trunk = Trunk(build())
    states = trunk.text_states(ids, torch.zeros_like(ids))
    torch.testing.assert_close(trunk.project(states.post_BTD), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(trunk.final_norm(states.pre_BTD), states.post_BTD)
    assert not torch.allclose(states.pre_BTD, states.post_BTD)


@torch.no_grad()
def test_packed_documents_do_not_see_each_other(build: Build) -> None:
    trunk = Trunk(build())
    first, second = token_ids(1, 23), token_ids(1, 20).flip(1)
    packed = torch.cat([first, second], dim=1)
    doc_ids = torch.tensor([[0] * 23 + [1] * 20])
    together = trunk.text_states(packed, doc_ids)
    for side in ("pre_BTD", "post_BTD"):
        apart = [getattr(trunk.text_states(ids, torch.zeros_like(ids)), side) for ids in (first, second)]
        torch.testing.assert_close(getattr(together, side), torch.cat(apart, dim=1), rtol=1e-4, atol=1e-4)


def test_recurrent_families_load_where_they_can_be_rewound() -> None:
    assert Trunk(tiny_qwen3_next()).is_recurrent
    other = tiny_qwen3_next()
    other.config.model_type = "new_hybrid"
    with pytest.raises(UnsupportedModel, match="rejected drafts cannot be undone, because .* not been tried"):
        Trunk(other)
    assert Trunk(other, for_training=True).is_recurrent


class _ScaledLlama(LlamaForCausalLM):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits = output.logits * 1.5
        return output


def test_a_step_that_the_wrapper_does_not_know_is_noticed() -> None:
    model = tiny_llama()
    model.__class__ = _ScaledLlama
    with pytest.raises(UnsupportedModel, match="other logits than the model itself"):
        Trunk(model)


def test_fingerprint_follows_the_weights_not_their_type() -> None:
    trunk = Trunk(tiny_llama())
    assert trunk.fingerprint() == Trunk(tiny_llama().bfloat16()).fingerprint()
    before = trunk.fingerprint()
    with torch.no_grad():
        trunk.decoder.layers[1].mlp.up_proj.weight[5, 7] += 0.5
    assert trunk.fingerprint() != before
    assert script_trunk("abc").fingerprint() != script_trunk("acb").fingerprint()


def test_document_positions_start_anew() -> None:
    """Rotary embeddings hide an offset, learned positions would not."""
    doc_ids = torch.tensor([[0, 0, 0, 1, 2, 2, -1], [7, 7, 8, 8, 8, 8, 8]])
    assert document_positions(doc_ids).tolist() == [[0, 1, 2, 0, 0, 1, 0], [0, 1, 0, 1, 2, 3, 4]]


def test_eos_of_the_model() -> None:
    assert Trunk(tiny_llama()).eos_token_ids == {EOS}
    model = tiny_llama()
    model.generation_config.eos_token_id = [3, EOS]
    assert Trunk(model).eos_token_ids == {3, EOS}


@torch.no_grad()
def test_script_trunk_says_its_chain_with_a_gap_of_16() -> None:
    trunk = script_trunk(">hi😀!<eos>")
    ids = torch.tensor([encode(">hi😀!<eos>")])
    logits = trunk.project(trunk.text_states(ids, torch.zeros_like(ids)).post_BTD)
    assert logits[0, :-1].argmax(-1).tolist() == ids[0, 1:].tolist()
    top = logits[0, :-1].topk(2).values
    assert ((top[:, 0] - top[:, 1]) > 16).all()
