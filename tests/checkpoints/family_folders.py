"""Tiny checkpoints with native heads, one family each, as their authors publish them.

Stored names, the order of the halves, and which state a head reads stand here by hand, from the loaders of the engines,
and are never taken from the table that is tested (foretell.checkpoints.families).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.step3p7.configuration_step3p7 import Step3p7TextConfig

from foretell.checkpoints import families
from foretell.models import step3p5 as step3p5  # transformers is told of its class
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


def tiny_mimo_v2(**kw: Any) -> Any:
    """Full attention with a dense MLP, sliding attention with sinks and more key heads, both with experts."""
    values = ROUTED_EXPERTS | dict(num_hidden_layers=3, num_key_value_heads=1, v_head_dim=12, sliding_window=8)
    kinds = dict(
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        mlp_layer_types=["dense", "sparse", "sparse"],
    )
    model = build(transformers.MiMoV2FlashConfig(**_base(**values | kinds | kw)))
    generator = torch.Generator().manual_seed(5)
    for layer in model.model.layers:
        if layer.self_attn.sinks is not None:
            layer.self_attn.sinks.data = torch.randn(layer.self_attn.sinks.shape, generator=generator)
    return model


def tiny_step3p5(**kw: Any) -> Any:
    """Gated attention, of which sliding layers have more heads; two dense layers and two with experts, one clamped."""
    experts = dict(n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, share_expert_dim=32)
    kinds = dict(
        num_hidden_layers=4,
        layer_types=["sliding_attention", "full_attention"] * 2,
        mlp_layer_types=["dense", "dense", "sparse", "sparse"],
        num_sliding_attention_heads=6,
        sliding_window=8,
        swiglu_limits=[0.0, 0.0, 0.0, 1.0],
        rope_theta=[1e4, 5e5, 1e4, 5e5],
        partial_rotary_factors=[1.0, 0.5, 1.0, 0.5],
    )
    return build(Step3p7TextConfig(**_base(**experts | kinds | kw)))


def tiny_longcat(**kw: Any) -> Any:
    """Layers of two attentions and two dense MLPs each, with experts around the second."""
    experts = dict(n_routed_experts=4, zero_expert_num=2, moe_topk=2, expert_ffn_hidden_size=32, ffn_hidden_size=96)
    values = _base(**LATENT | experts | dict(num_layers=2, head_dim=LATENT["qk_rope_head_dim"]) | kw)
    del values["intermediate_size"], values["num_hidden_layers"]
    return build(transformers.LongcatFlashConfig(**values))


@dataclass(frozen=True)
class Stored:
    """``make``: the trunk. ``names``: part -> stored prefix ({k} the module, {n} its layer number). ``donor``: the
    trunk's layer whose tensors a head's layer has; ``mlp``: the one whose MLP it has in place of that one's; ``half``:
    it has the first half of the donor alone; ``then``: those of its second layer. ``renames``: names within the layer,
    the trunk's and the heads'. ``claim``: the setting that says how many modules there are, "" = none does. ``feeds``:
    a module's state for the next, behind its final norm or before. ``kinds``: attention and MLP of the heads' layers,
    where the config says them. ``centred``: norms are stored as offsets from 1. ``embedding``, ``final_norm``: names
    in the trunk.
    """

    make: Callable[..., Any]
    names: Mapping[str, str]
    family: str
    claim: str = "num_nextn_predict_layers"
    architecture: str = ""
    donor: int = -1
    then: int | None = None
    mlp: int | None = None
    half: bool = False
    renames: tuple[tuple[str, str], ...] = ()
    hidden_first: bool = False
    reads: Literal["post", "pre"] = "post"
    feeds: Literal["normed", "raw"] = "normed"
    zero_first: bool = False
    centred: bool = False
    kinds: tuple[str, ...] = ()
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
MIMO_V2 = {
    "enorm": "model.mtp.layers.{k}.enorm",
    "hnorm": "model.mtp.layers.{k}.hnorm",
    "eh_proj": "model.mtp.layers.{k}.eh_proj",
    "norm": "model.mtp.layers.{k}.final_layernorm",
    "layer": "model.mtp.layers.{k}",
}
STEP = {
    "enorm": "model.layers.{n}.enorm",
    "hnorm": "model.layers.{n}.hnorm",
    "eh_proj": "model.layers.{n}.eh_proj",
    "norm": "model.layers.{n}.transformer.shared_head.norm",
    "output": "model.layers.{n}.transformer.shared_head.output",
    "layer": "model.layers.{n}",
}
LONGCAT = {
    "enorm": "model.mtp.layers.{k}.enorm.m",
    "hnorm": "model.mtp.layers.{k}.hnorm.m",
    "eh_proj": "model.mtp.layers.{k}.eh_proj",
    "norm": "model.mtp.norm",
    "layer": "model.mtp.layers.{k}",
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
    "mimo_v2": Stored(
        tiny_mimo_v2,
        MIMO_V2,
        "mimo_v2",
        claim="",
        donor=1,
        mlp=0,
        renames=(("post_attention_layernorm", "pre_mlp_layernorm"),),
        reads="pre",
        feeds="raw",
    ),
    "step3p5": Stored(
        tiny_step3p5,
        STEP,
        "step3p5",
        donor=0,
        reads="pre",
        feeds="raw",
        centred=True,
        kinds=("sliding_attention", "dense"),
    ),
    "longcat": Stored(
        tiny_longcat,
        LONGCAT,
        "longcat",
        donor=1,
        half=True,
        renames=(("mlp", "transformer_layer.mlp"),),
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


@contextmanager
def not_run(name: str, why: str) -> Iterator[None]:
    """The table as it is while the heads of family ``name`` cannot be run yet, for the reason ``why``."""
    table = tuple(replace(one, blocked=why) if one.name == name else one for one in families.FAMILIES)
    with patch.object(families, "FAMILIES", table):
        yield


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
    layer = layer_of(tensors, stored.donor % num_layers)
    if stored.mlp is not None:
        within = layer_of(tensors, stored.mlp)
        layer = {name: t for name, t in layer.items() if not name.startswith("mlp.")}
        layer |= {name: t for name, t in within.items() if name.startswith("mlp.")}
    if stored.half:
        layer = first_half(layer)
    for theirs, ours in stored.renames:
        layer = {re.sub(f"^{re.escape(theirs)}", ours, name): t for name, t in layer.items()}
    return {"layer": layer} | second


def first_half(layer: Tensors) -> Tensors:
    """The first attention and the first dense MLP of LongCat's double layer, as a layer of their own."""
    first = {"self_attn.0.": "self_attn.", "mlps.0.": "mlp.", "input_layernorm.0.": "input_layernorm."}
    first["post_attention_layernorm.0."] = "post_attention_layernorm."
    return {
        name.replace(theirs, ours): t for name, t in layer.items() for theirs, ours in first.items() if theirs in name
    }


def layer_of(tensors: Tensors, index: int) -> Tensors:
    """The tensors of the trunk's layer ``index``, by their names within it."""
    mark = f"layers.{index}."
    return {name.split(mark)[1]: tensor for name, tensor in tensors.items() if mark in name}


_KINDS = ("layer_types", "mlp_layer_types")


def claims(stored: Stored, num_modules: int) -> dict[str, Any]:
    """What config.json says of the heads."""
    architecture = {"architectures": [stored.architecture]} if stored.architecture else {}
    count = {stored.claim: num_modules} if stored.claim else {}
    kinds = {f"mtp_{key}": [kind] * num_modules for key, kind in zip(_KINDS, stored.kinds, strict=False)}
    return count | kinds | architecture


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
        if "output" in stored.names:
            own = noise(*tensors["lm_head.weight"].shape)
            parts["output"] = tensors["lm_head.weight"] + (0.1 * own if guesses else own)
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
        "output": tensors["lm_head.weight"],
    }
    heads: Tensors = {}
    for k in range(num_modules):
        scale = 0.0 if wrong == "second" and k == 1 else 1.0
        heads |= named(stored, num_layers, k, parts | {"eh_proj": scale * torch.cat(pair, dim=1)}, layers)
    return finish(folder, tensors | heads, **claims(stored, num_modules))
