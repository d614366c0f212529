"""What engines do with a checkpoint, by what lies in it: formats.md's facts, one case each."""

from __future__ import annotations

from typing import Any

import pytest

from foretell.checkpoints.families import ENGINES
from foretell.inspection.gguf_engine import gguf_family, gguf_line
from foretell.inspection.model import inspect_stored
from tests.inspection.manifests import Headers, bf16, stored

H, V = 8, 50
TRUNK = bf16(
    {"model.embed_tokens.weight": (V, H), "lm_head.weight": (V, H)}
    | {f"model.layers.{i}.self_attn.q_proj.weight": (H, H) for i in range(2)}
)
SIZES = {"num_hidden_layers": 2, "hidden_size": H, "vocab_size": V}


def behind(num_modules: int = 1, first: int = 2) -> Headers:
    shapes: dict[str, tuple[int, ...]] = {}
    for n in range(first, first + num_modules):
        at = f"model.layers.{n}"
        shapes |= {f"{at}.enorm.weight": (H,), f"{at}.hnorm.weight": (H,), f"{at}.eh_proj.weight": (H, 2 * H)}
        shapes |= {f"{at}.shared_head.norm.weight": (H,), f"{at}.self_attn.q_proj.weight": (H, H)}
    return bf16(shapes)


def flat(prefix: str = "mtp") -> Headers:
    norms = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    shapes: dict[str, tuple[int, ...]] = {f"{prefix}.{name}.weight": (H,) for name in norms}
    return bf16(shapes | {f"{prefix}.fc.weight": (H, 2 * H), f"{prefix}.layers.0.self_attn.q_proj.weight": (H, H)})


def mimo(num_modules: int = 1) -> Headers:
    names = ("token_layernorm", "hidden_layernorm", "final_layernorm", "input_proj", "self_attn.q_proj")
    return bf16({f"model.mtp_layers.{k}.{name}.weight": (H, H) for k in range(num_modules) for name in names})


def lines(heads: Headers, architecture: str, **config: Any) -> dict[str, str]:
    values = {"architectures": [architecture], **SIZES, **config}
    return inspect_stored(stored(values, TRUNK | heads)).engines


QWEN = {"model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1, "full_attention_interval": 2}
HYBRID = ["linear_attention", "full_attention"]


@pytest.mark.parametrize(
    ("heads", "architecture", "config", "expected"),
    [
        ({}, "LlamaForCausalLM", {}, dict.fromkeys(ENGINES, "plain model")),
        (
            flat(),
            "Qwen3_5ForCausalLM",
            QWEN | {"layer_types": HYBRID},
            {"transformers": "drops", "vLLM": "decodes", "SGLang": "decodes", "llama.cpp": "decodes"},
        ),
        (
            flat(),
            "Qwen3_5ForCausalLM",
            QWEN | {"layer_types": ["full_attention"] * 2},
            {"vLLM": "decodes", "SGLang": "does not fit layer_types", "llama.cpp": "aborts"},
        ),
        ({}, "Qwen3_5ForCausalLM", QWEN, {"vLLM": "missing weights", "SGLang": "nobody set", "llama.cpp": "--no-mtp"}),
        (
            {},
            "DeepseekV3ForCausalLM",
            {"num_nextn_predict_layers": 1},
            {"vLLM": "stops at the missing", "transformers": "weights are missing"},
        ),
        (
            behind(),
            "DeepseekV3ForCausalLM",
            {"num_nextn_predict_layers": 1, "model_type": "deepseek_v3"},
            {"transformers": "behind layer 61", "vLLM": "decodes", "SGLang": "first", "llama.cpp": "drops"},
        ),
        (
            behind(2),
            "DeepseekV3ForCausalLM",
            {"num_mtp_layers": 2},
            {"vLLM": "lacks num_nextn_predict_layers: 2", "SGLang": "first of 2"},
        ),
        (
            behind(2),
            "DeepseekV32ForCausalLM",
            {"num_nextn_predict_layers": 2},
            {"vLLM": "all 2", "llama.cpp": "decodes"},
        ),
        (
            behind(),
            "DeepseekV3ForCausalLM",
            {},
            {"vLLM": "lacks num_nextn_predict_layers: 1", "SGLang": "lacks", "llama.cpp": "lacks"},
        ),
        (behind(), "Glm4MoeForCausalLM", {"num_nextn_predict_layers": 1}, {"vLLM": "expects experts"}),
        (
            behind(),
            "DeepseekV3ForCausalLM",
            {"num_nextn_predict_layers": 1, "n_routed_experts": 8, "first_k_dense_replace": 1},
            {"vLLM": "expects experts", "llama.cpp": "drops"},
        ),
        (
            behind(),
            "DeepseekV3ForCausalLM",
            {"num_nextn_predict_layers": 1, "n_routed_experts": 8, "first_k_dense_replace": 3},
            {"vLLM": "decodes"},
        ),
        (
            behind(2),
            "Glm4MoeForCausalLM",
            {"num_nextn_predict_layers": 2},
            {"SGLang": "first of 2", "llama.cpp": "stops"},
        ),
        (
            behind(),
            "LlamaForCausalLM",
            {"num_nextn_predict_layers": 1},
            {"transformers": "unexpected", "vLLM": "if the config had num_mtp_layers", "SGLang": "alone"},
        ),
        (
            behind(),
            "LlamaMtpForCausalLM",
            {"num_mtp_layers": 1, "auto_map": {"AutoModelForCausalLM": "m.M"}},
            {"transformers": "trust_remote_code", "vLLM": "--trust-remote-code", "llama.cpp": "cannot convert"},
        ),
        (mimo(), "MiMoForCausalLM", {"num_nextn_predict_layers": 1}, {"vLLM": "before", "SGLang": "after"}),
        (mimo(2), "MiMoForCausalLM", {"num_nextn_predict_layers": 2}, {"vLLM": "first of 2", "SGLang": "last of 2"}),
        (flat(), "Qwen3NextForCausalLM", {"model_type": "qwen3_next"}, {"vLLM": "decodes", "llama.cpp": "decodes"}),
    ],
)
def test_engines(heads: Headers, architecture: str, config: dict[str, Any], expected: dict[str, str]) -> None:
    found = lines(heads, architecture, **config)
    assert list(found) == list(ENGINES)
    for engine, words in expected.items():
        assert words in found[engine], (engine, found[engine])


def test_heads_that_need_no_announcement_are_no_problem() -> None:
    """Qwen3-Next's config has no key for them."""
    config = {"architectures": ["Qwen3NextForCausalLM"], **SIZES}
    assert inspect_stored(stored(config, TRUNK | flat())).problems == []


@pytest.mark.parametrize(
    ("architecture", "modules", "claimed", "is_recurrent", "words"),
    [
        ("qwen35", 1, 1, True, "decodes"),
        ("qwen35", 1, 1, False, "aborts"),
        ("qwen35moe", 2, 2, True, "one module"),
        ("deepseek2", 1, 1, False, "decodes"),
        ("exaone-moe", 1, 1, False, "unused"),
        ("llama", 0, 0, False, "plain model"),
        ("glm4moe", 0, 1, False, "missing"),
        ("glm4moe", 1, 0, False, "does not announce"),
    ],
)
def test_gguf(architecture: str, modules: int, claimed: int, is_recurrent: bool, words: str) -> None:
    assert words in gguf_line(architecture, modules, claimed, is_recurrent)


def test_families_of_gguf_architectures() -> None:
    names = {"qwen35moe": "qwen3_5", "glm-dsa": "deepseek", "nemotron_h_moe": "nemotron_h", "llama": ""}
    assert {name: gguf_family(name) for name in names} == names
