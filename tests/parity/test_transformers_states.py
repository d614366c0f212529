"""What native heads compute, layer by layer, against transformers' own ``MtpModel``: mask, rotary embedding and all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.modeling_layers import MtpModel

from foretell.checkpoints.load import load_trunk
from foretell.checkpoints.native_heads import load_native_heads
from tests.parity.native_models import PATTERNS, write_layout

CASES = [
    ("deepseek_v3", 1),
    ("deepseek_v3", 2),
    ("glm4_moe", 1),
    ("glm4_moe", 2),
    ("glm4_moe_lite", 1),
    ("mellum", 1),
    ("qwen3_5", 1),
    ("llama behind", 1),
    ("llama behind", 2),
    ("llama shared names", 2),
]
NUM_TOKENS = 12


@pytest.mark.parametrize(("name", "num_modules"), CASES)
def test_states_are_those_of_transformers(name: str, num_modules: int, tmp_path: Path) -> None:
    """Every module's states, each on those of the one before."""
    trunk = load_trunk(write_layout(tmp_path, name, num_modules))
    heads = load_native_heads(trunk)
    trunk.model._keys_to_ignore_on_load_unexpected = PATTERNS
    theirs = MtpModel.from_pretrained(trunk.model).eval()
    ids = torch.randint(0, 256, (1, NUM_TOKENS), generator=torch.Generator().manual_seed(0))
    doc_ids = torch.zeros_like(ids)
    with torch.no_grad():
        states = trunk.text_states(ids, doc_ids)
        ours = heads.training_states(states, trunk.embed(ids), doc_ids)
        assert len(ours) == len(theirs.layers) == num_modules
        previous_BTD = states.post_BTD
        for k, ours_BTD in enumerate(ours):
            length = NUM_TOKENS - 1 - k
            previous_BTD = their_layer(theirs, k, trunk.embed(ids[:, k + 1 :]), previous_BTD[:, :length])
            torch.testing.assert_close(ours_BTD[:, :length], previous_BTD, rtol=1e-4, atol=1e-5)


def their_layer(theirs: Any, k: int, embeddings_BTD: torch.Tensor, states_BTD: torch.Tensor) -> torch.Tensor:
    """Their module ``k`` on whole texts, without a cache."""
    length = states_BTD.shape[1]
    positions = torch.arange(length)[None]
    kind = {"layer_type": theirs.config.layer_types[k]} if theirs.has_per_layer_rope else {}
    return theirs.layers[k](
        embeddings_BTD,
        states_BTD,
        position_embeddings=theirs.rotary_emb(states_BTD, positions, **kind),
        attention_mask=torch.ones(length, length, dtype=torch.bool).tril()[None, None],
        position_ids=positions,
        cache=None,
    )
