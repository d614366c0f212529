"""Where heads can be exported to: the layout, which trunks it takes, and what becomes of the trunk's config."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from foretell.checkpoints.families import Family, family_of_architecture
from foretell.checkpoints.layer_settings import Layers, padded
from foretell.checkpoints.stored import StoredModel
from foretell.convert.claims import CLASS_PREFIX, MODELING_FILE, is_remote
from foretell.convert.mimo_layout import biased, mimo_config, zero_biases
from foretell.convert.resolved import resolved
from foretell.errors import CheckpointError, UnsupportedModel

Config = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """``family``: the entry of the table whose layout is written, "" = the trunk's own.

    ``trunks``: model types it takes, none = any; ``hint``: what to give instead where one is refused. ``config``: the
    new config, of the trunk, the number of modules, and the trunk's layers that they are built as. ``added``: tensors
    that the trunk lacks in this layout. ``texts``: files that go with it. ``biased``: projections of the heads' layers
    that have a bias, of zero where the trunk's have none. ``serve``: how engines are told to use the heads.
    """

    name: str
    family: str
    trunks: tuple[str, ...]
    config: Callable[[StoredModel, int, Layers], Config]
    hint: str
    serve: str
    added: Callable[[StoredModel], Iterator[tuple[str, torch.Tensor]]] = lambda source: iter(())
    texts: Callable[[StoredModel, int], dict[str, str]] = lambda source, num_modules: {}
    biased: Callable[[StoredModel], tuple[str, ...]] = lambda source: ()


def _qwen3_5(source: StoredModel, num_modules: int, layers: Layers) -> Config:
    """The keys of Qwen3.5, and those that transformers' own MtpModel reads."""
    claims: Config = {"mtp_num_hidden_layers": num_modules, "num_mtp_layers": num_modules}
    claims["mtp_layer_types"] = ["full_attention"] * num_modules
    types = source.text_config.get("layer_types") or []
    if "linear_attention" in types and "full_attention" in types:
        claims["full_attention_interval"] = types.index("full_attention") + 1  # SGLang reads this, not layer_types
    config = _with(source.config, claims)
    return config if "text_config" in config else _text_rope(config)


def _native(source: StoredModel, num_modules: int, layers: Layers) -> Config:
    """The trunk's own config, which announces the heads as its family does."""
    family = own_family(source)
    claims: Config = dict.fromkeys(family.count_keys[:1], num_modules)
    claims |= _layer_types(source, num_modules, layers)
    if family.pads_lists:
        claims |= padded(source.text_config, source.num_layers, num_modules, layers)
    return _with(source.config, claims)


def own_family(source: StoredModel) -> Family:
    """The family that the trunk's architecture belongs to. Raises UnsupportedModel where it has no layout for heads."""
    family = family_of_architecture(source.config)
    if family is None:
        kind = source.text_config.get("model_type")
        fitting = [f"--to {name}, or " for name, target in TARGETS.items() if kind in target.trunks]
        raise UnsupportedModel(
            f"{source.folder}: no layout for heads is known of "
            f"{', '.join(source.config.get('architectures') or ['?'])}; give {''.join(fitting)}--to deepseek-style, "
            "which takes any trunk"
        )
    return family


def _layer_types(source: StoredModel, num_modules: int, layers: Layers) -> Config:
    """What transformers wants to know of the heads' layers, where the config has such lists for the trunk's."""
    lists = {key: source.text_config.get(key) for key in ("layer_types", "mlp_layer_types")}
    chosen = dict(zip(lists, layers, strict=True))
    return {f"mtp_{key}": [types[chosen[key]]] * num_modules for key, types in lists.items() if types}


def _deepseek(source: StoredModel, num_modules: int, layers: Layers) -> Config:
    """The trunk's own config, a class of its own name that knows which layers are heads, and the claims."""
    claims: Config = {"num_mtp_layers": num_modules, "num_nextn_predict_layers": num_modules}
    claims |= _layer_types(source, num_modules, layers)
    return _with(source.config, claims) | remote_class(source)


def remote_class(source: StoredModel) -> Config:
    """The settings that name the class of ``remote_code``. Raises UnsupportedModel for a trunk with code of its own."""
    if source.config.get("auto_map") and not is_remote(source.config):
        raise UnsupportedModel(
            f"{source.folder}: its class comes from code in the checkpoint (auto_map), which the deepseek-style layout "
            "would have to replace; use a model of transformers' own"
        )
    name = CLASS_PREFIX + _architecture(source)
    auto_map = {"AutoModelForCausalLM": f"{MODELING_FILE.removesuffix('.py')}.{name}"}
    return {"architectures": [name], "auto_map": auto_map}


def remote_code(source: StoredModel, num_modules: int) -> dict[str, str]:
    """The trunk's class, told which layers are heads."""
    base = _architecture(source)
    layers = "|".join(str(source.num_layers + k) for k in range(num_modules))
    text = (
        f'"""{base} with MTP heads in layers {layers.replace("|", ", ")}, for generate(use_mtp=True)."""\n\n'
        f"from transformers import {base}\n\n\n"
        f"class {CLASS_PREFIX}{base}({base}):\n"
        f'    _keys_to_ignore_on_load_unexpected = [r"^model\\.layers\\.({layers})\\."]\n'
    )
    return {MODELING_FILE: text}


def _mellum(source: StoredModel, num_modules: int, layers: Layers) -> Config:
    """A dense Qwen3 as Mellum, whose experts are never built: transformers serves its heads without remote code."""
    config = resolved(source)
    count = source.num_layers
    types = config.get("layer_types") or ["full_attention"] * count
    if set(types) != {"full_attention"} or config.get("attention_bias"):
        raise CheckpointError(
            f"{source.folder}: the mellum layout takes a dense Qwen3 with full attention and no biases; give --to "
            "deepseek-style"
        )
    rope = config.pop("rope_parameters", None) or {"rope_type": "default", "rope_theta": config.get("rope_theta", 1e4)}
    for key in ("rope_theta", "rope_scaling", "sliding_window", "use_sliding_window", "max_window_layers"):
        config.pop(key, None)
    return config | {
        "architectures": ["MellumForCausalLM"],
        "model_type": "mellum",
        "layer_types": types,
        "mlp_layer_types": ["dense"] * count,
        "rope_parameters": {"full_attention": rope},
        "num_nextn_predict_layers": num_modules,
        "mtp_layer_types": ["full_attention"] * num_modules,
        "mtp_mlp_layer_types": ["dense"] * num_modules,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
    }


def _text_rope(config: Config) -> Config:
    """Without the sections of a rotary embedding for images, which change nothing in text.

    vLLM takes them from the trunk's config and not from the heads', whose positions then have three rows too many.
    """
    rope = config.get("rope_parameters")
    if not isinstance(rope, dict):
        return config
    return config | {"rope_parameters": {key: value for key, value in rope.items() if not key.startswith("mrope_")}}


def _with(config: Config, claims: Config) -> Config:
    """``claims`` where the settings of the language model stand."""
    nested = config.get("text_config")
    return config | ({"text_config": nested | claims} if isinstance(nested, dict) else claims)


def _architecture(source: StoredModel) -> str:
    names = source.config.get("architectures") or []
    if len(names) != 1 or not str(names[0]).isidentifier():
        raise CheckpointError(f"{source.folder}: architectures is {names!r}; expected one class name")
    return str(names[0]).removeprefix(CLASS_PREFIX)


_VLLM = 'vllm serve DIR --speculative-config \'{"method":"mtp","num_speculative_tokens":K}\''
_SGLANG = "--speculative-algorithm NEXTN --speculative-num-steps K --speculative-eagle-topk 1"

TARGETS = {
    target.name: target
    for target in (
        Target(
            name="mimo",
            family="mimo",
            trunks=("llama", "qwen2", "mistral"),
            config=lambda source, num_modules, layers: mimo_config(source, num_modules),
            hint="deepseek-style takes any trunk",
            serve=f"vLLM: {_VLLM}; SGLang, where the final norm was folded: {_SGLANG}",
            added=zero_biases,
            biased=biased,
        ),
        Target(
            name="qwen3_5",
            family="qwen3_5",
            trunks=("qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe", "qwen3_next"),
            config=_qwen3_5,
            hint="mimo takes llama and qwen2, mellum qwen3, deepseek-style any trunk",
            serve=f"vLLM: {_VLLM}; SGLang: {_SGLANG}; llama.cpp: convert it, then --spec-type draft-mtp",
        ),
        Target(
            name="deepseek-style",
            family="deepseek",
            trunks=(),
            config=_deepseek,
            texts=remote_code,
            hint="",
            serve=f"transformers: generate(use_mtp=True), trust_remote_code=True; vLLM: {_VLLM} --trust-remote-code",
        ),
        Target(
            name="native",
            family="",
            trunks=(),
            config=_native,
            hint="",
            serve="whatever decodes with the released model's heads: foretell inspect says which engines do",
        ),
        Target(
            name="mellum",
            family="mellum",
            trunks=("qwen3",),
            config=_mellum,
            hint="deepseek-style takes any trunk",
            serve=f"transformers: generate(use_mtp=True); vLLM: {_VLLM}",
        ),
    )
}
