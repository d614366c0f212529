"""MiMo-7B's layout on a Llama, Mistral or Qwen2 trunk: engines go by the class name, transformers by the model type.

So the class is MiMo's and the model type stays the trunk's. With Qwen2's for every trunk, transformers would load
Qwen2's tokenizer for it, whatever tokenizer.json says, and engines with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from foretell.checkpoints.quantisation import quantisation_of
from foretell.checkpoints.stored import StoredModel
from foretell.convert.resolved import resolved
from foretell.errors import CheckpointError

ARCHITECTURE = "MiMoForCausalLM"
PLAIN_CLASSES = {"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}
"""Model types of the layout, and the class that transformers loads for each."""


def mimo_config(source: StoredModel, num_modules: int) -> dict[str, Any]:
    """The trunk's config under MiMo's class name: loads without remote code, in transformers as the plain trunk.

    Raises CheckpointError for what MiMo's layers, which are Qwen2's, cannot express.
    """
    _refuse(source)
    config = resolved(source)
    for key in ("mlp_bias", "pretraining_tp", "head_dim", "rope_interleaved", "auto_map", "attention_bias"):
        config.pop(key, None)
    if _is_qwen2(source):
        own: dict[str, Any] = {"use_sliding_window": False}
    else:  # a Mistral without a window is a Llama, whose class has biases on the output of attention too, or nowhere
        config.pop("sliding_window", None)
        own = {"model_type": "llama", "attention_bias": True}
    return config | own | {"architectures": [ARCHITECTURE], "num_nextn_predict_layers": num_modules}


def biased(source: StoredModel) -> tuple[str, ...]:
    """Projections of attention that have a bias in the layout: MiMo's class never adds up that of ``o_proj``."""
    return ("q_proj", "k_proj", "v_proj") if _is_qwen2(source) else ("q_proj", "k_proj", "v_proj", "o_proj")


def zero_biases(source: StoredModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Biases of the trunk that the layout has and the trunk lacks: zeros, which change nothing."""
    for index in range(source.num_layers):
        for part in biased(source):
            at = f"model.layers.{index}.self_attn.{part}"
            if f"{at}.bias" not in source.headers:
                shape, _ = source.headers[f"{at}.weight"]
                yield f"{at}.bias", torch.zeros(shape[0], dtype=source.dtype(f"{at}.weight"))


def _is_qwen2(source: StoredModel) -> bool:
    return source.text_config.get("model_type") == "qwen2"


def _refuse(source: StoredModel) -> None:
    config = source.text_config
    if said := quantisation_of(config):
        raise CheckpointError(
            f"{source.folder}: quantised ({said.method}); the mimo layout takes plain weights: export, then quantise"
        )
    size, num_heads = config.get("hidden_size", 0), config.get("num_attention_heads", 1)
    window = config.get("sliding_window") if config.get("model_type") == "mistral" else None
    wrong = [
        f"{key} {value!r}"
        for key, value, allowed in (
            ("hidden_act", config.get("hidden_act"), ("silu", None)),
            ("mlp_bias", config.get("mlp_bias"), (False, None)),
            ("head_dim", config.get("head_dim"), (size // num_heads, None)),
            ("use_sliding_window", config.get("use_sliding_window"), (False, None)),
            ("sliding_window", window, (None,)),
        )
        if value not in allowed
    ]
    outputs = [name for name in source.headers if name.endswith("self_attn.o_proj.bias")]
    if any(values.any() for _, values in source.read(outputs)):
        wrong.append("biases on the output of attention")
    if wrong:
        raise CheckpointError(f"{source.folder}: MiMo's layers, which are Qwen2's, have no {', '.join(wrong)}")
