"""Configs of well-known models, as their checkpoints' config.json has them: the settings that sizes follow from.

``model_type`` names transformers' class; what is left out is that class's default. No size is written down: parameters,
experts and caches are counted on a model that transformers builds from these without memory.

Read: the defaults of transformers' own config classes (DeepSeek-V3, Qwen3-Next-80B-A3B, Qwen3.5-9B and -35B-A3B) and
THUDM/slime's scripts/models (MiMo-7B, Qwen3.5-0.8B, -27B, -397B-A17B). The rest was written down from knowledge of the
models, without their config.json at hand; the tests hold every total against the published size. MiMo-7B is a Qwen2
with one MTP layer, which transformers has no class for.
"""

from __future__ import annotations

from typing import Any

_QWEN3_5 = {
    "vocab_size": 248320,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
}
_QWEN3_5_DENSE = {"model_type": "qwen3_5_text", **_QWEN3_5}
_QWEN3_5_MOE = {"model_type": "qwen3_5_moe_text", "tie_word_embeddings": False, **_QWEN3_5}
_SMOLLM2 = {"model_type": "llama", "vocab_size": 49152, "tie_word_embeddings": True, "max_position_embeddings": 8192}
_LLAMA3 = {
    "model_type": "llama",
    "vocab_size": 128256,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": False,
    "max_position_embeddings": 8192,
}


def _sizes(hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
    }


PRESETS: dict[str, dict[str, Any]] = {
    "deepseek-v3": {
        "model_type": "deepseek_v3",
        **_sizes(7168, 18432, 61, 128, 128),
        "vocab_size": 129280,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "tie_word_embeddings": False,
    },
    "qwen3-next-80b-a3b": {
        "model_type": "qwen3_next",
        **_sizes(2048, 5120, 48, 16, 2),
        "vocab_size": 151936,
        "head_dim": 256,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "tie_word_embeddings": False,
    },
    "qwen3.5-0.8b": {
        **_QWEN3_5_DENSE,
        **_sizes(1024, 3584, 24, 8, 2),
        "linear_num_value_heads": 16,
        "tie_word_embeddings": True,
    },
    "qwen3.5-4b": {
        **_QWEN3_5_DENSE,
        **_sizes(2560, 9216, 32, 16, 4),
        "linear_num_value_heads": 32,
        "tie_word_embeddings": True,
    },
    "qwen3.5-9b": {
        **_QWEN3_5_DENSE,
        **_sizes(4096, 12288, 32, 16, 4),
        "linear_num_value_heads": 32,
        "tie_word_embeddings": False,
    },
    "qwen3.5-27b": {
        **_QWEN3_5_DENSE,
        **_sizes(5120, 17408, 64, 24, 4),
        "linear_num_value_heads": 48,
        "tie_word_embeddings": False,
    },
    "qwen3.5-35b-a3b": {
        **_QWEN3_5_MOE,
        "hidden_size": 2048,
        "num_hidden_layers": 40,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "linear_num_value_heads": 32,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_experts": 256,
        "num_experts_per_tok": 8,
    },
    "qwen3.5-397b-a17b": {
        **_QWEN3_5_MOE,
        "hidden_size": 4096,
        "num_hidden_layers": 60,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "linear_num_value_heads": 64,
        "moe_intermediate_size": 1024,
        "shared_expert_intermediate_size": 1024,
        "num_experts": 512,
        "num_experts_per_tok": 10,
    },
    "glm-4.5": {
        "model_type": "glm4_moe",
        **_sizes(5120, 12288, 92, 96, 8),
        "vocab_size": 151552,
        "head_dim": 128,
        "moe_intermediate_size": 1536,
        "n_routed_experts": 160,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
        "use_qk_norm": True,
        "attention_bias": True,
        "tie_word_embeddings": False,
    },
    "mimo-7b": {
        "model_type": "qwen2",
        **_sizes(4096, 11008, 36, 32, 8),
        "vocab_size": 151680,
        "tie_word_embeddings": False,
        "max_position_embeddings": 32768,
    },
    "llama-3-8b": {**_LLAMA3, **_sizes(4096, 14336, 32, 32, 8)},
    "llama-3-70b": {**_LLAMA3, **_sizes(8192, 28672, 80, 64, 8)},
    "smollm2-135m": {**_SMOLLM2, **_sizes(576, 1536, 30, 9, 3)},
    "smollm2-360m": {**_SMOLLM2, **_sizes(960, 2560, 32, 15, 5)},
    "smollm2-1.7b": {**_SMOLLM2, **_sizes(2048, 8192, 24, 32, 32)},
}
