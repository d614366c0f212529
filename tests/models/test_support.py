from __future__ import annotations

from typing import Any

import pytest
import transformers

from foretell.config import HeadsConfig
from foretell.errors import UnsupportedModel
from foretell.models.sequential import SequentialHeads
from foretell.models.support import refuse_layer_types
from foretell.models.trunk import Trunk
from tests.fixtures import EOS, VOCAB_SIZE, build

SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48)
N_SIZES = dict(n_embd=32, n_layer=2, n_head=2, n_positions=64)
OPT_SIZES = dict(ffn_dim=48, word_embed_proj_dim=32, max_position_embeddings=64)
EXPERTS = dict(num_key_value_heads=2, head_dim=16, num_local_experts=2, num_experts_per_tok=1)


def model(family: str, **sizes: Any) -> Any:
    config = getattr(transformers, f"{family}Config")
    return build(config(vocab_size=VOCAB_SIZE, bos_token_id=None, eos_token_id=EOS, pad_token_id=EOS, **sizes))


@pytest.mark.parametrize(
    ("family", "sizes", "lacks"),
    [
        ("GPT2", N_SIZES, "a list of decoder layers, a rotary embedding"),
        ("GPTJ", N_SIZES | {"rotary_dim": 8}, "a list of decoder layers"),
        ("Falcon", SIZES, "a list of decoder layers"),
        ("OPT", SIZES | OPT_SIZES, "a rotary embedding"),
        ("Olmo", SIZES, "a final norm with a gain"),
    ],
)
def test_heads_refuse_a_trunk_that_lacks_what_they_copy(family: str, sizes: dict[str, Any], lacks: str) -> None:
    trunk = Trunk(model(family, **sizes))
    with pytest.raises(UnsupportedModel, match=f"{family}ForCausalLM|{family}LMHeadModel") as caught:
        SequentialHeads(trunk, HeadsConfig())
    assert lacks in str(caught.value)


@pytest.mark.parametrize(
    ("family", "sizes", "reason"),
    [
        ("Bloom", dict(hidden_size=32, n_layer=2, n_head=2), "masks and positions"),
    ],
)
def test_a_trunk_whose_layers_cannot_be_driven_is_refused(family: str, sizes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"{family}ForCausalLM: .*{reason}"):
        Trunk(model(family, **sizes))


def test_a_layer_type_without_a_mask_is_refused() -> None:
    """Llama 4: chunks once decoded as full attention, which its own logits show only past the first chunk."""
    chunked = model("Llama4Text", **SIZES | EXPERTS, intermediate_size_mlp=48, layer_types=["chunked_attention"] * 2)
    with pytest.raises(UnsupportedModel, match="Llama4.*layers of type chunked_attention"):
        Trunk(chunked)
    refuse_layer_types("X", transformers.LlamaConfig())
    refuse_layer_types("X", transformers.Gemma2Config())
