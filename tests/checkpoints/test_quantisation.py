"""What a config says of quantisation against how tensors are stored: T15, heads that were left out and not named."""

from __future__ import annotations

from typing import Any

import pytest

from foretell.checkpoints.files import TensorHeader
from foretell.checkpoints.quantisation import exceptions, is_exempt, quantisation_of
from foretell.inspection.inspection import Inspection
from foretell.inspection.model import inspect_stored
from tests.inspection.manifests import Headers, bf16, stored

H = 128
FP8 = {"quant_method": "fp8", "fmt": "e4m3"}


def fp8(name: str) -> Headers:
    return {
        f"{name}.weight": TensorHeader((H, H), "F8_E4M3"),
        f"{name}.weight_scale_inv": TensorHeader((1, 1), "F32"),
    }


def model(quantised_heads: bool, settings: Any) -> Inspection:
    """A trunk of one quantised layer and an unquantised router, and heads of Qwen's layout."""
    headers = bf16({"model.embed_tokens.weight": (50, H), "lm_head.weight": (50, H)})
    headers |= fp8("model.layers.0.self_attn.q_proj") | bf16({"model.layers.0.mlp.gate.weight": (4, H)})
    norms = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    headers |= bf16({f"mtp.{name}.weight": (H,) for name in norms} | {"mtp.fc.weight": (H, 2 * H)})
    name = "mtp.layers.0.self_attn.q_proj"
    headers |= fp8(name) if quantised_heads else bf16({f"{name}.weight": (H, H)})
    headers |= bf16({"mtp.layers.0.mlp.gate.weight": (4, H)})
    config = {"architectures": ["Qwen3_5MoeForCausalLM"], "num_hidden_layers": 1, "mtp_num_hidden_layers": 1}
    config |= {"hidden_size": H, "vocab_size": 50, "quantization_config": settings}
    return inspect_stored(stored(config, headers))


@pytest.mark.parametrize(
    ("quantised_heads", "settings", "heads", "problem"),
    [
        (True, FP8, "quantised", ""),
        (False, FP8, "plain", "stored plain (mtp.layers.0.self_attn.q_proj): engines read them wrongly"),
        (False, FP8 | {"modules_to_not_convert": ["mtp.layers.0.self_attn.q_proj"]}, "plain", ""),
        (False, FP8 | {"modules_to_not_convert": ["mtp"]}, "plain", "name them in modules_to_not_convert"),
        (False, {"quant_method": "awq", "modules_to_not_convert": ["mtp"]}, "plain", ""),
        (False, {"quant_method": "compressed-tensors", "ignore": ["mtp"]}, "plain", "name them in ignore"),
        (False, FP8 | {"modules_to_not_convert": ["lm_head"]}, "plain", "name them in modules_to_not_convert"),
        (False, {"quant_method": "compressed-tensors", "ignore": ["lm_head"]}, "plain", "name them in ignore"),
        (False, {"quant_method": "compressed-tensors", "ignore": ["re:mtp.*"]}, "plain", ""),
        (False, {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["mtp*"]}, "plain", ""),
        (
            True,
            FP8 | {"modules_to_not_convert": ["mtp.layers.0.self_attn.q_proj"]},
            "quantised",
            "leaves out 1 matrices of the heads",
        ),
        (True, None, None, "config has no quantization_config"),
        (True, "fp8", None, "config's quantization_config is 'fp8'; expected an object"),
    ],
)
def test_heads_against_the_config(quantised_heads: bool, settings: Any, heads: str | None, problem: str) -> None:
    found = model(quantised_heads, settings)
    assert (found.quantisation.heads if found.quantisation else None) == heads
    assert not found.problems if not problem else problem in found.problems[0]


def test_a_config_without_quantised_tensors() -> None:
    headers = bf16({"model.embed_tokens.weight": (50, H), "model.layers.0.mlp.up_proj.weight": (H, H)})
    config = {"num_hidden_layers": 1, "quantization_config": FP8}
    assert inspect_stored(stored(config, headers)).problems == [
        "config says fp8, but no matrix in the files is quantised"
    ]


@pytest.mark.parametrize(
    ("settings", "method", "bits"),
    [
        (FP8, "fp8", 8),
        ({"quant_method": "gptq", "bits": 4}, "gptq", 4),
        ({"quant_method": "awq", "w_bit": 4}, "awq", 4),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes", 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False}, "bitsandbytes", 4),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt", 4),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4}}}},
            "compressed-tensors",
            4,
        ),
        ({"quant_method": "new"}, "new", None),
    ],
)
def test_method_and_bits(settings: dict[str, Any], method: str, bits: int | None) -> None:
    for config in ({"quantization_config": settings}, {"text_config": {"quantization_config": settings}}):
        found = quantisation_of(config)
        assert found and (found.method, found.bits) == (method, bits)
    assert quantisation_of({"quantization_config": {}}) is None


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("mtp", True),
        ("mtp.layers.0.mlp.gate", True),
        ("mlp.gate", True),
        ("gate", True),
        ("mlp.gate_proj", False),
        ("mtp.layers.1", False),
        ("re:.*gate$", True),
        ("re:[", False),
        ("mtp.layers.0*", True),
        ("*layers.1*", False),
    ],
)
def test_exceptions(entry: str, expected: bool) -> None:
    assert is_exempt("mtp.layers.0.mlp.gate", ["lm_head", entry], "modelopt") is expected


@pytest.mark.parametrize("method", ["fp8", "compressed-tensors", "awq"])
def test_what_is_written_is_understood(method: str) -> None:
    """As vLLM reads it: whole names or, for compressed-tensors, expressions; elsewhere also what lies around."""
    modules = ["mtp.fc", "mtp.layers.0.mlp.experts.0.up_proj", "mtp.layers.0.self_attn.q_proj"]
    entries = exceptions(method, modules)
    assert entries == (["mtp.fc", "mtp.layers.0"] if method == "awq" else modules)
    assert all(is_exempt(module, entries, method) for module in modules)
    assert not is_exempt("mtp.layers.1.self_attn.q_proj", entries, method)
    for entry, others in {"mtp.layers.0": ("awq",), "re:mtp\\.layers": ("awq", "compressed-tensors")}.items():
        assert is_exempt("mtp.layers.0.self_attn.k_proj", [entry], method) is (method in others)


def test_one_expert_of_fp8_speaks_for_its_layer() -> None:
    """As vLLM, which holds them in one module, asks for it."""
    entry = "mtp.layers.0.mlp.experts.0.up_proj"
    assert is_exempt("mtp.layers.0.mlp.experts.7.down_proj", [entry], "fp8")
    assert not is_exempt("mtp.layers.0.mlp.shared_experts.down_proj", [entry], "fp8")
