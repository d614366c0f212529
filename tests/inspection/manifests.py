"""Checkpoints as headers alone: sizes of published models, in files that take no room on the disk."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.checkpoints.files import TensorHeader
from foretell.checkpoints.stored import StoredModel

Headers = dict[str, TensorHeader]


def stored(config: Mapping[str, Any], headers: Headers) -> StoredModel:
    """A folder's config and headers, without a folder."""
    folder = Path("/nowhere")
    return StoredModel(folder, dict(config), [], headers, dict.fromkeys(headers, folder / "model.safetensors"))


def bf16(shapes: Mapping[str, tuple[int, ...]]) -> Headers:
    """Headers of these shapes."""
    return {name: TensorHeader(shape, "BF16") for name, shape in shapes.items()}


def write(folder: Path, config: Mapping[str, Any] | None, headers: Headers, num_files: int = 1) -> Path:
    """The files of such a checkpoint, with an index where there are several; what they hold is a hole in the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    names = sorted(headers)
    size = -(-len(names) // num_files)
    index = {}
    for number in range(num_files):
        file = f"model-{number + 1:05d}-of-{num_files:05d}.safetensors" if num_files > 1 else "model.safetensors"
        part = names[number * size : (number + 1) * size]
        write_file(folder / file, {name: headers[name] for name in part})
        index |= dict.fromkeys(part, file)
    if num_files > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return folder


def write_file(path: Path, headers: Headers) -> None:
    """One safetensors file, its tensors a hole."""
    entries, end = {}, 0
    for name, header in headers.items():
        begin, end = end, end + header.num_bytes
        entries[name] = {"dtype": header.dtype, "shape": list(header.shape), "data_offsets": [begin, end]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


DEEPSEEK_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "num_nextn_predict_layers": 1,
    "hidden_size": 7168,
    "vocab_size": 129280,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
}
"""deepseek-ai/DeepSeek-V3, config.json: what matters here."""


def deepseek_v3() -> Headers:
    """Every tensor of deepseek-ai/DeepSeek-V3, by the sizes in its config.json."""
    width, vocabulary = 7168, 129280
    headers: Headers = {}

    def plain(name: str, *shape: int, dtype: str = "BF16") -> None:
        headers[name] = TensorHeader(shape, dtype)

    def small(name: str, rows: int, columns: int) -> None:
        headers[f"{name}.weight"] = TensorHeader((rows, columns), "F8_E4M3")
        headers[f"{name}.weight_scale_inv"] = TensorHeader((-(-rows // 128), -(-columns // 128)), "F32")

    def mlp(name: str, inner: int) -> None:
        small(f"{name}.gate_proj", inner, width)
        small(f"{name}.up_proj", inner, width)
        small(f"{name}.down_proj", width, inner)

    plain("model.embed_tokens.weight", vocabulary, width)
    plain("model.norm.weight", width)
    plain("lm_head.weight", vocabulary, width)
    for layer in range(62):
        at = f"model.layers.{layer}"
        plain(f"{at}.input_layernorm.weight", width)
        plain(f"{at}.post_attention_layernorm.weight", width)
        small(f"{at}.self_attn.q_a_proj", 1536, width)
        plain(f"{at}.self_attn.q_a_layernorm.weight", 1536)
        small(f"{at}.self_attn.q_b_proj", 128 * 192, 1536)
        small(f"{at}.self_attn.kv_a_proj_with_mqa", 576, width)
        plain(f"{at}.self_attn.kv_a_layernorm.weight", 512)
        small(f"{at}.self_attn.kv_b_proj", 128 * 256, 512)
        small(f"{at}.self_attn.o_proj", width, 128 * 128)
        if layer < 3:
            mlp(f"{at}.mlp", 18432)
            continue
        plain(f"{at}.mlp.gate.weight", 256, width)
        plain(f"{at}.mlp.gate.e_score_correction_bias", 256, dtype="F32")
        mlp(f"{at}.mlp.shared_experts", 2048)
        for expert in range(256):
            mlp(f"{at}.mlp.experts.{expert}", 2048)
    at = "model.layers.61"
    plain(f"{at}.embed_tokens.weight", vocabulary, width)
    plain(f"{at}.enorm.weight", width)
    plain(f"{at}.hnorm.weight", width)
    plain(f"{at}.eh_proj.weight", width, 2 * width)
    plain(f"{at}.shared_head.norm.weight", width)
    plain(f"{at}.shared_head.head.weight", vocabulary, width)
    return headers
