"""Tiny checkpoints with native heads, one family each, as their authors publish them.

Stored names, the order of the halves, and which state a head reads stand here by hand, from the loaders of the engines,
and are never taken from the table that is tested (foretell.checkpoints.families).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.fixtures import (
    EXPERTS,
    LATENT,
    RECURRENT,
    ROUTED_EXPERTS,
    _base,
    build,
    byte_tokenizer,
    tiny_deepseek_v3,
    tiny_glm4_moe,
    tiny_llama,
    tiny_qwen2,
    tiny_qwen3_5,
    tiny_qwen3_next,
)

Tensors = dict[str, torch.Tensor]


def tiny_qwen3_5_moe(**kw: Any) -> Any:
    """Three recurrent layers and one of gated attention, with routed experts and a shared one."""
    values = RECURRENT | EXPERTS | {"shared_expert_intermediate_size": 32} | kw
    return build(transformers.Qwen3_5MoeTextConfig(**_base(**values)))


def tiny_glm4_moe_lite(**kw: Any) -> Any:
    """Latent attention and experts."""
    values = _base(**ROUTED_EXPERTS | LATENT | kw)
    del values["head_dim"]
    return build(transformers.Glm4MoeLiteConfig(**values))


def tiny_hy_v3(**kw: Any) -> Any:
    """One dense layer, one with experts."""
    return build(transformers.HYV3Config(**_base(**EXPERTS | dict(first_k_dense_replace=1, num_shared_experts=1) | kw)))


def tiny_exaone_moe(**kw: Any) -> Any:
    """One dense layer, one with experts."""
    return build(transformers.ExaoneMoeConfig(**_base(**EXPERTS | dict(first_k_dense_replace=1) | kw)))


def tiny_mellum(**kw: Any) -> Any:
    """Layers with experts."""
    values = dict(num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=32) | kw
    return build(transformers.MellumConfig(**_base(**values)))


def tiny_ernie4_5_moe(**kw: Any) -> Any:
    """One dense layer, one with experts."""
    experts = dict(moe_num_experts=4, moe_k=2, moe_intermediate_size=32, moe_num_shared_experts=1)
    values = _base(**experts | dict(moe_layer_start_index=1, moe_layer_end_index=1) | kw)
    del values["head_dim"]
    return build(transformers.Ernie4_5_MoeConfig(**values))


def tiny_bailing_hybrid(**kw: Any) -> Any:
    """A recurrent layer, and one of latent attention with experts."""
    values = LATENT | dict(
        num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, n_group=1, topk_group=1
    )
    kinds = dict(layer_types=["linear_attention", "full_attention"], first_k_dense_replace=1)
    return build(transformers.BailingHybridConfig(**_base(**values | kinds | kw)))


def tiny_nemotron_h(**kw: Any) -> Any:
    """Mamba, experts without a gate, attention without positions: each a layer of its own."""
    mamba = dict(mamba_num_heads=8, mamba_head_dim=16, ssm_state_size=16, n_groups=2, chunk_size=8)
    experts = dict(n_routed_experts=4, moe_intermediate_size=32, moe_shared_expert_intermediate_size=32)
    kinds = dict(layers_block_type=["linear_attention", "moe", "full_attention"], num_hidden_layers=3)
    return build(transformers.NemotronHConfig(**_base(**mamba | experts | kinds | kw)))


@dataclass(frozen=True)
class Stored:
    """``make``: the trunk. ``names``: part -> stored prefix ({k} the module, {n} its layer number). ``donor``: the
    trunk's layer whose tensors a head's layer has; ``then``: those of its second layer. ``centred``: norms are stored
    as offsets from 1. ``embedding``, ``final_norm``: names in the trunk.
    """

    make: Callable[..., Any]
    names: Mapping[str, str]
    family: str
    claim: str = "num_nextn_predict_layers"
    architecture: str = ""
    donor: int = -1
    then: int | None = None
    hidden_first: bool = False
    reads: Literal["post", "pre"] = "post"
    zero_first: bool = False
    centred: bool = False
    embedding: str = "model.embed_tokens.weight"
    final_norm: str = "model.norm.weight"


BEHIND = {
    "enorm": "model.layers.{n}.enorm",
    "hnorm": "model.layers.{n}.hnorm",
    "eh_proj": "model.layers.{n}.eh_proj",
    "norm": "model.layers.{n}.shared_head.norm",
    "layer": "model.layers.{n}",
}
FLAT = {
    "enorm": "mtp.pre_fc_norm_embedding",
    "hnorm": "mtp.pre_fc_norm_hidden",
    "eh_proj": "mtp.fc",
    "norm": "mtp.norm",
    "layer": "mtp.layers.{k}",
}
SHARED_NAMES = {
    "enorm": "mtp.layers.{k}.enorm",
    "hnorm": "mtp.layers.{k}.hnorm",
    "eh_proj": "mtp.layers.{k}.eh_proj",
    "norm": "mtp.layers.{k}.post_norm",
    "layer": "mtp.layers.{k}",
}
MIMO = {
    "enorm": "model.mtp_layers.{k}.token_layernorm",
    "hnorm": "model.mtp_layers.{k}.hidden_layernorm",
    "eh_proj": "model.mtp_layers.{k}.input_proj",
    "norm": "model.mtp_layers.{k}.final_layernorm",
    "layer": "model.mtp_layers.{k}",
}
ERNIE = {
    "enorm": "model.mtp_emb_norm.{k}",
    "hnorm": "model.mtp_hidden_norm.{k}",
    "eh_proj": "model.mtp_linear_proj.{k}",
    "layer": "model.mtp_block.{k}",
}
SPECULATORS = {
    "enorm": "mtp_layers.{k}.token_layernorm",
    "hnorm": "mtp_layers.{k}.hidden_layernorm",
    "eh_proj": "mtp_layers.{k}.input_proj",
    "norm": "mtp_layers.{k}.final_layernorm",
    "layer": "mtp_layers.{k}",
}
NEMOTRON = {
    "enorm": "mtp.layers.0.enorm",
    "hnorm": "mtp.layers.0.hnorm",
    "eh_proj": "mtp.layers.0.eh_proj",
    "layer": "mtp.layers.0",
    "then": "mtp.layers.1",
    "norm": "mtp.layers.1.final_layernorm",
}
_QWEN = dict(names=FLAT, claim="mtp_num_hidden_layers", centred=True)

LOADABLE = {
    "deepseek_v3": Stored(tiny_deepseek_v3, BEHIND, "deepseek"),
    "glm4_moe": Stored(tiny_glm4_moe, BEHIND, "glm4_moe"),
    "glm4_moe_lite": Stored(tiny_glm4_moe_lite, BEHIND, "glm4_moe"),
    "hy_v3": Stored(tiny_hy_v3, BEHIND | {"norm": "model.layers.{n}.final_layernorm"}, "hy_v3"),
    "qwen3_next": Stored(tiny_qwen3_next, family="qwen3_next", **_QWEN),
    "qwen3_5": Stored(tiny_qwen3_5, family="qwen3_5", **_QWEN),
    "qwen3_5_moe": Stored(tiny_qwen3_5_moe, family="qwen3_5", **_QWEN),
    "exaone_moe": Stored(tiny_exaone_moe, FLAT, "exaone"),
    "mellum": Stored(tiny_mellum, FLAT, "mellum"),
    "ernie4_5_moe": Stored(tiny_ernie4_5_moe, ERNIE, "ernie4_5", donor=0, zero_first=True),
    "mimo": Stored(
        tiny_qwen2, MIMO, "mimo", architecture="MiMoForCausalLM", hidden_first=True, reads="pre", zero_first=True
    ),
    "bailing_hybrid": Stored(
        tiny_bailing_hybrid,
        BEHIND | {"norm": "model.layers.{n}.final_layernorm"},
        "bailing",
        embedding="model.word_embeddings.weight",
    ),
    "nemotron_h": Stored(
        tiny_nemotron_h,
        NEMOTRON,
        "nemotron_h",
        then=1,
        embedding="backbone.embeddings.weight",
        final_norm="backbone.norm_f.weight",
    ),
    "llama behind": Stored(tiny_llama, BEHIND, "deepseek", claim="num_mtp_layers"),
    "llama shared names": Stored(tiny_llama, SHARED_NAMES, "transformers", claim="num_mtp_layers"),
}
"""A folder for every family whose heads Foretell runs, and two layouts on a trunk that has no family of its own."""


def _layer_names(at: str, *rests: str) -> list[str]:
    return [f"{at}.{rest}.weight" for rest in rests]


_FUSION = ("enorm", "hnorm", "eh_proj", "input_layernorm", "post_attention_layernorm")
_DENSE = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
_PLAIN = tuple(f"self_attn.{name}_proj" for name in "qkvo")
BLOCKED = {
    "step3p5": (
        "Step3p5ForCausalLM",
        {"num_nextn_predict_layers": 3},
        [
            name
            for k in range(3)
            for name in _layer_names(f"model.layers.{2 + k}", *_FUSION, *_DENSE, *_PLAIN, "self_attn.g_proj")
            + _layer_names(f"model.layers.{2 + k}.transformer.shared_head", "norm", "output")
        ],
    ),
    "mimo_v2": (
        "MiMoV2FlashForCausalLM",
        {},
        [
            name
            for k in range(3)
            for name in _layer_names(f"model.mtp.layers.{k}", *_FUSION[:4], "pre_mlp_layernorm", "final_layernorm")
            + _layer_names(f"model.mtp.layers.{k}", *_DENSE, *_PLAIN)
            + [f"model.mtp.layers.{k}.self_attn.attention_sink_bias"]
        ],
    ),
    "longcat": (
        "LongcatFlashForCausalLM",
        {"num_nextn_predict_layers": 1},
        _layer_names("model.mtp", "embed_tokens", "norm")
        + _layer_names("model.mtp.layers.0", "enorm.m", "hnorm.m", *_FUSION[2:], "self_attn.kv_b_proj")
        + _layer_names("model.mtp.layers.0.transformer_layer", *_DENSE),
    ),
}
"""Families that are told apart and not run: architecture, claims, names of the heads behind a trunk of two layers."""


def write_trunk(stored: Stored, folder: Path, **config: Any) -> tuple[Tensors, int]:
    """The trunk alone, from its own ``save_pretrained``: its tensors, and its number of layers."""
    model = stored.make(**config)
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return load_file(folder / "model.safetensors"), int(model.config.num_hidden_layers)


def finish(folder: Path, tensors: Tensors, **config: Any) -> Path:
    """Write ``tensors`` in place of those of ``folder``, and ``config`` into its config.json."""
    save_file({name: t.clone() for name, t in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    written = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(written))
    return folder


def named(stored: Stored, num_layers: int, k: int, parts: Tensors, layers: dict[str, Tensors]) -> Tensors:
    """Module ``k``'s tensors under their stored names."""
    at = {part: prefix.format(k=k, n=num_layers + k) for part, prefix in stored.names.items()}
    found = {f"{at[part]}.weight": tensor for part, tensor in parts.items() if part in at}
    for part, layer in layers.items():
        found |= {f"{at[part]}.{rest}": tensor for rest, tensor in layer.items()}
    return found


def donated(stored: Stored, tensors: Tensors, num_layers: int) -> dict[str, Tensors]:
    """The layers of a module, by part, with the values of the trunk's that they are built as."""
    second = {} if stored.then is None else {"then": layer_of(tensors, stored.then)}
    return {"layer": layer_of(tensors, stored.donor % num_layers)} | second


def layer_of(tensors: Tensors, index: int) -> Tensors:
    """The tensors of the trunk's layer ``index``, by their names within it."""
    mark = f"layers.{index}."
    return {name.split(mark)[1]: tensor for name, tensor in tensors.items() if mark in name}


def claims(stored: Stored, num_modules: int) -> dict[str, Any]:
    """What config.json says of the heads."""
    architecture = {"architectures": [stored.architecture]} if stored.architecture else {}
    return {stored.claim: num_modules} | architecture


def random_modules(
    stored: Stored, tensors: Tensors, num_layers: int, num_modules: int = 1, guesses: bool = False
) -> Tensors:
    """Modules of noise: the donor layer's tensors and the fusion's, none of them an identity.

    ``guesses``: less noise, and the newest token's embedding handed on, so that drafts are right now and then.
    """
    generator = torch.Generator().manual_seed(1)
    size = tensors[stored.embedding].shape[1]

    def noise(*shape: int) -> torch.Tensor:
        return 0.1 * torch.randn(*shape, generator=generator)

    found: Tensors = {}
    one = 0.0 if stored.centred else 1.0
    for k in range(num_modules):
        layers = donated(stored, tensors, num_layers)
        layers = {part: {n: t + noise(*t.shape).to(t) for n, t in layer.items()} for part, layer in layers.items()}
        parts = {part: one + noise(size) for part in ("enorm", "hnorm", "norm")}
        pair = [noise(size, size), noise(size, size)]
        if guesses:
            layers = {part: weak(layer) for part, layer in layers.items()}
            pair = [torch.eye(size) + 0.2 * pair[0], 0.2 * pair[1]]
        if stored.hidden_first:
            pair.reverse()
        found |= named(stored, num_layers, k, parts | {"eh_proj": torch.cat(pair, dim=1)}, layers)
    return found


def weak(tensors: Tensors) -> Tensors:
    """Layers that add so little that a text hangs mostly on its newest token."""
    ends = ("o_proj.weight", "down_proj.weight", "out_proj.weight")
    return {name: 0.05 * t if name.endswith(ends) else t for name, t in tensors.items()}


def write_random(
    stored: Stored,
    folder: Path,
    num_modules: int = 1,
    *,
    guesses: bool = False,
    claim: Mapping[str, Any] | None = None,
    **config: Any,
) -> Path:
    """A random trunk with ``num_modules`` random modules; ``claim`` goes into config.json beside the family's own."""
    tensors, num_layers = write_trunk(stored, folder, **config)
    heads = random_modules(stored, tensors, num_layers, num_modules, guesses)
    trunk = weak(tensors) if guesses else tensors
    return finish(folder, trunk | heads, **claims(stored, num_modules) | dict(claim or {}))


# A trunk whose text is known, and heads that are always right if they are read as their family means them


@dataclass(frozen=True)
class Script:
    """Token a is followed by a + 1, in a circle of ``size``. States are rows of an orthogonal matrix; the final norm's
    gain is a random sign, so that the state before it and the one after it have nothing in common.
    """

    size: int = 64

    @property
    def rows_VD(self) -> torch.Tensor:
        """The direction of every token."""
        return torch.linalg.qr(torch.randn(self.size, self.size, generator=torch.Generator().manual_seed(3)))[0]

    @property
    def signs_D(self) -> torch.Tensor:
        """The final norm's gain."""
        return torch.randn(self.size, generator=torch.Generator().manual_seed(4)).sign()


def write_script(
    stored: Stored,
    folder: Path,
    source: Literal["embedding", "hidden"],
    *,
    num_modules: int = 1,
    wrong: Literal["", "halves", "source", "norm", "second"] = "",
    **config: Any,
) -> Path:
    """A trunk that counts in a circle, with a head that reads one half of its input alone and is always right.

    ``wrong`` changes one thing: the ``halves`` of the projection in the other order, the hidden ``source`` on the other
    side of the trunk's final norm, a final ``norm`` without the signs that the output head undoes, a ``second`` module
    that gives zeros.
    """
    tensors, num_layers = write_trunk(stored, folder, **config)
    script, offset = Script(), 1.0 if stored.centred else 0.0
    rows_VD, signs_D = script.rows_VD, script.signs_D
    for name, tensor in tensors.items():
        gain = "norm" in name and tensor.dim() == 1 and "linear_attn" not in name
        tensor.fill_(1.0 - offset if gain else 0.0)  # layers add nothing: a state is its token's direction
    tensors[stored.embedding][: script.size] = rows_VD
    tensors[stored.final_norm].copy_(signs_D - offset)
    tensors["lm_head.weight"][: script.size] = (rows_VD * signs_D).roll(1, 0)
    before = {"post": rows_VD * signs_D, "pre": rows_VD}
    reads = stored.reads if wrong != "source" else {"post": "pre", "pre": "post"}[stored.reads]
    out_VD = (
        rows_VD if "norm" in stored.names else rows_VD * signs_D
    )  # without a final norm: what the output head reads
    halves = {
        "embedding": out_VD.T @ rows_VD,
        "hidden": out_VD.roll(-1, 0).T @ before[reads],  # a state of token a, to the direction of token a + 1
    }
    zeros = torch.zeros(script.size, script.size)
    pair = [halves["embedding"], zeros] if source == "embedding" else [zeros, halves["hidden"]]
    if stored.hidden_first != (wrong == "halves"):
        pair.reverse()  # the halves as the family orders them
    layers = donated(stored, tensors, num_layers)
    ones, zero = torch.ones(script.size) - offset, torch.zeros(script.size) - offset
    parts = {
        "enorm": ones if source == "embedding" else zero,  # lets nothing of the other half through
        "hnorm": ones if source == "hidden" else zero,
        "norm": ones if wrong == "norm" else signs_D - offset,
    }
    heads: Tensors = {}
    for k in range(num_modules):
        scale = 0.0 if wrong == "second" and k == 1 else 1.0
        heads |= named(stored, num_layers, k, parts | {"eh_proj": scale * torch.cat(pair, dim=1)}, layers)
    return finish(folder, tensors | heads, **claims(stored, num_modules))
