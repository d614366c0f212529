"""Meta's multi-token-prediction checkpoints: ``extra_heads.{k}``, a Llama-1 block a depth on the state below the last.

Queries and keys are stored for rotary pairs side by side; transformers wants the halves of a head apart.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from foretell.checkpoints.folds import rotary_pairs_to_halves
from foretell.config import HeadsConfig
from foretell.errors import CheckpointError
from foretell.models.build import build_heads
from foretell.models.heads import Heads
from foretell.models.trunk import Trunk

PREFIX = "extra_heads."
_NAMES = {
    "attention.wq": "self_attn.q_proj",
    "attention.wk": "self_attn.k_proj",
    "attention.wv": "self_attn.v_proj",
    "attention.wo": "self_attn.o_proj",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w2": "mlp.down_proj",
    "feed_forward.w3": "mlp.up_proj",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def meta_heads(trunk: Trunk, tensors: Mapping[str, torch.Tensor]) -> tuple[Heads, dict[str, str]]:
    """Parallel heads with the values of ``extra_heads.*``, and our name of each; other tensors are the trunk's.

    Raises CheckpointError naming what does not fit.
    """
    ours: dict[str, str] = {}
    for name in tensors:
        index, _, rest = name.removeprefix(PREFIX).partition(".")
        part = rest.removesuffix(".weight")
        ours[name] = f"modules_by_depth.{index}.layer.{_NAMES.get(part, part)}.weight"
    num_heads = len({name.split(".")[1] for name in ours.values()})
    config = HeadsConfig(kind="parallel", num_depths=num_heads, hidden_source="below", final_norm="trunk")
    heads = build_heads(trunk, config)
    own = heads.state_dict()
    wrong = sorted(own.keys() ^ set(ours.values()))
    if wrong:
        raise CheckpointError(f"heads that do not fit {trunk.name}: missing or unexpected {', '.join(wrong)}")
    num_heads_of = {"wq": trunk.config.num_attention_heads, "wk": trunk.config.num_key_value_heads}
    with torch.no_grad():
        for name, there in ours.items():
            values = tensors[name]
            if (kind := name.removesuffix(".weight").rsplit(".", 1)[1]) in num_heads_of:
                values = rotary_pairs_to_halves(values, num_heads_of[kind])
            if values.shape != own[there].shape:
                raise CheckpointError(f"{name} {list(values.shape)} instead of {list(own[there].shape)}")
            own[there].copy_(values)
    return heads, ours
