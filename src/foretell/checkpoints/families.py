"""The table of MTP families: how a checkpoint names its native heads, what they compute, and what engines do with them.

One entry a family; detection, loading, inspecting and converting all read it. Sources: the loaders of transformers
5.24, vLLM 0.33, SGLang 0.5.23 and llama.cpp (September 2026). Adding a family is a checklist in CONTRIBUTING.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

ENGINES = ("transformers", "vLLM", "SGLang", "llama.cpp")
LAYERS = ("layer", "then")
"""Parts that are a whole layer's."""
_NESTED = re.compile(r"^(?:model\.language_model|language_model\.model)\.")


class Place(NamedTuple):
    """Where a stored tensor belongs: the module, from 0, the ``part`` of it, and the ``rest`` of the name."""

    module: int
    part: str
    rest: str


@dataclass(frozen=True)
class Family:
    """One way of storing native heads.

    ``parts``: part of a module -> stored prefix, in which ``{k}`` is the module, from 0, and ``{n}`` the layer number
    behind the trunk's last; where a module has two layers, ``{a}`` and ``{b}`` number them through all modules. Parts:
    ``enorm``, ``hnorm``, ``eh_proj``, ``norm`` (the module's final norm), ``layer`` and ``then`` (prefixes of the
    decoder layers' own names), ``embedding`` and ``output`` (copies of the trunk's).
    ``architectures``: regular expression for config.json's; "" matches none: the layout alone decides.
    ``count_keys``: settings that announce the number of modules. ``conventions``: what differs from HeadsConfig's
    defaults. ``centred``: norms store an offset from 1, or not; None = as the trunk's. ``renames``: names within the
    layer that differ from those of the trunk's layers, (theirs, the trunk's). ``layer_kind``: what the modules' layers
    are in the family's own models where no config says it, "" = not known. ``pads_lists``: settings with a value for
    each layer go on for the modules. ``joins_layers``: engines join the attention of one layer to the MLP of another.
    ``own_layer``: the trunk's layer whose MLP engines build in a module, -1 = the usual one's (``block_index``).
    ``max_modules``: engines serve no more of this family, 0 = any number. ``engines``: what each of ``ENGINES`` does
    with a checkpoint. ``blocked``: why Foretell cannot run its heads as they lie in a model folder, or "";
    ``blocked_by``: the same of those with a tensor so named, (part of the name, why).
    """

    name: str
    models: str
    architectures: str
    parts: Mapping[str, str]
    count_keys: tuple[str, ...] = ("num_nextn_predict_layers",)
    conventions: Mapping[str, Any] = field(default_factory=dict)
    centred: bool | None = None
    renames: tuple[tuple[str, str], ...] = ()
    layer_kind: str = ""
    pads_lists: bool = False
    joins_layers: bool = False
    own_layer: int = -1
    max_modules: int = 0
    engines: tuple[str, str, str, str] = ("", "", "", "")
    blocked: str = ""
    blocked_by: tuple[str, str] | None = None

    def why_blocked(self, names: Iterable[str]) -> str:
        """Why Foretell cannot run heads with tensors of these names, or ""."""
        if self.blocked_by is None or self.blocked:
            return self.blocked
        part, why = self.blocked_by
        return why if any(part in name for name in names) else ""

    def prefix(self, part: str, index: int, num_layers: int) -> str:
        """Stored name of ``part`` of module ``index``, on a trunk of ``num_layers`` layers."""
        return self.parts[part].format(k=index, n=num_layers + index, a=2 * index, b=2 * index + 1)

    @cached_property
    def _patterns(self) -> list[tuple[str, re.Pattern[str]]]:
        found = []
        for part, prefix in self.parts.items():
            text = re.sub(r"\\\{([knab])\\\}", r"(?P<\1>\\d{1,9})", re.escape(prefix))
            rest = ".+" if part in LAYERS else r"[^.]+"
            found.append((part, re.compile(rf"{text}\.(?P<rest>{rest})")))
        return sorted(found, key=lambda item: item[0] in LAYERS)  # what is not one of the named parts is a layer's

    def place(self, name: str, num_layers: int) -> Place | None:
        """Where the stored tensor ``name`` belongs; None where it is no tensor of this family's heads.

        Models with images hold their language model, and its heads, one name deeper; Medusa's own models its heads.
        """
        name = _NESTED.sub("model.", name).removeprefix("medusa_head.")
        for part, pattern in self._patterns:
            if found := pattern.fullmatch(name):
                index, rest = _module_of(found, num_layers), found["rest"]
                if index is not None:
                    return Place(index, part, self._renamed(rest) if part in LAYERS else rest)
        return None

    def stored(self, place: Place, num_layers: int) -> str:
        """The name under which this family stores what ``place`` says; the reverse of ``place``."""
        rest = place.rest
        for theirs, ours in self.renames if place.part in LAYERS else ():
            rest = re.sub(rf"^{re.escape(ours)}", theirs, rest)
        return f"{self.prefix(place.part, place.module, num_layers)}.{rest}"

    def _renamed(self, rest: str) -> str:
        for theirs, ours in self.renames:
            rest = re.sub(rf"^{re.escape(theirs)}", ours, rest)
        return rest


def _module_of(found: re.Match[str], num_layers: int) -> int | None:
    """The module, from 0, that a name's numbers say; None where they are those of no module."""
    [(kind, number)] = [(k, int(v)) for k, v in found.groupdict().items() if k != "rest"] or [("k", 0)]
    if kind in "ab":
        return number // 2 if number % 2 == "ab".index(kind) else None
    index = number - num_layers if kind == "n" else number
    return index if index >= 0 else None


def _within(
    at: str, *, norm: str, enorm: str = "enorm", hnorm: str = "hnorm", eh_proj: str = "eh_proj", **others: str
) -> dict[str, str]:
    """A module whose tensors all lie at one place, beside those of its layer."""
    parts = {"enorm": enorm, "hnorm": hnorm, "eh_proj": eh_proj, "norm": norm} | others
    return {part: f"{at}.{name}" for part, name in parts.items()} | {"layer": at}


_BEHIND = "model.layers.{n}"
"""Layers behind the trunk's last, as DeepSeek-V3 stores them."""
_MIMO_NAMES = {"enorm": "token_layernorm", "hnorm": "hidden_layernorm", "eh_proj": "input_proj"}
_SHARED_HEAD = _within(_BEHIND, norm="shared_head.norm", embedding="embed_tokens", output="shared_head.head")
_FINAL_LAYERNORM = _within(_BEHIND, norm="final_layernorm", embedding="embed_tokens")
_FLAT = {
    "enorm": "mtp.pre_fc_norm_embedding",
    "hnorm": "mtp.pre_fc_norm_hidden",
    "eh_proj": "mtp.fc",
    "norm": "mtp.norm",
    "layer": "mtp.layers.{k}",
}
_QWEN_KEYS = ("mtp_num_hidden_layers", "num_mtp_layers")
_RUNS, _DROPS = "decodes with the heads", "runs the trunk, drops the heads without a word"
_WARNS = "runs the trunk, reports the heads as unexpected"
_IMPORTED = "they are read from an adapter alone, which is made by: foretell convert import HEADS OUT --trunk MODEL"

FAMILIES = (
    Family(
        name="deepseek",
        models="DeepSeek-V3, R1, V3.1, V3.2; GLM-5; openPangu-Ultra-MoE; any trunk with this layout",
        architectures=r"DeepseekV3\w*|DeepseekV32\w*|GlmMoeDsa\w*|PanguUltraMoE\w*",
        parts=_SHARED_HEAD,
        count_keys=("num_nextn_predict_layers", "num_mtp_layers"),
        engines=(_RUNS, _RUNS, "decodes with the first module", "V3.2: decodes with the heads; V3, R1: drops them"),
    ),
    Family(
        name="kimi_k3",
        models="Kimi-K3",
        architectures=r"KimiK3\w*",
        parts=_SHARED_HEAD,
        conventions={"feedback": "raw"},
        engines=("has no class for it", "not known", "not known", "not known"),
    ),
    Family(
        name="glm4_moe",
        models="GLM-4.5, 4.6, 4.7, 4.7-Flash, GLM-OCR",
        architectures=r"Glm4Moe\w*|GlmOcr\w*",
        parts=_SHARED_HEAD,
        engines=(_RUNS, "decodes with the heads; feeds back the state before their norm", _RUNS, _RUNS),
    ),
    Family(
        name="hy_v3",
        models="Hunyuan Hy3",
        architectures=r"HYV3\w*",
        parts=_FINAL_LAYERNORM,
        engines=(_DROPS, _RUNS, _RUNS, _RUNS),
    ),
    Family(
        name="bailing",
        models="Ling and Ring 2.x, 3",
        architectures=r"Bailing\w*",
        parts=_FINAL_LAYERNORM,
        count_keys=("num_nextn_predict_layers", "num_mtp_layers"),
        engines=("refuses: its cache is recurrent", _RUNS, _RUNS, "V3: decodes with the heads; V2: keeps them unused"),
    ),
    Family(
        name="step3p5",
        models="Step-3.5 and 3.7 Flash",
        architectures=r"Step3p[57]\w*",
        parts=_within(_BEHIND, norm="transformer.shared_head.norm", output="transformer.shared_head.output"),
        conventions={"hidden_source": "pre", "feedback": "raw", "own_output": True, "output_per_module": True},
        centred=True,
        pads_lists=True,
        joins_layers=True,
        engines=(
            "3.7 (with images): runs the trunk; use_mtp stops, as it misses the heads' final norms",
            _RUNS,
            _RUNS,
            _RUNS,
        ),
    ),
    Family(
        name="mimo",
        models="Xiaomi MiMo-7B",
        architectures=r"MiMoForCausalLM",
        parts=_within("model.mtp_layers.{k}", norm="final_layernorm", **_MIMO_NAMES),
        conventions={"hidden_source": "pre", "concat": "hidden_first", "zero_first": True},
        max_modules=1,
        engines=(
            _WARNS,
            "decodes with the first module, on the state before the trunk's final norm",
            "decodes with the last module, on the state after the final norm: right if its gain is 1 (--fold-norm)",
            "cannot convert it",
        ),
    ),
    Family(
        name="mimo_v2",
        models="MiMo-V2-Flash, V2.5, Pro",
        architectures=r"MiMoV2\w*",
        parts=_within("model.mtp.layers.{k}", norm="final_layernorm"),
        count_keys=(),
        conventions={"hidden_source": "pre", "feedback": "raw"},
        renames=(("pre_mlp_layernorm", "post_attention_layernorm"),),
        layer_kind="sliding_attention",
        joins_layers=True,
        engines=(
            _DROPS,
            "decodes with the first module, on the state after the trunk's final norm, and feeds back its normed state",
            "decodes with all modules, each on the trunk's state before its final norm",
            _RUNS,
        ),
        blocked_by=(
            ".self_attn.qkv_proj.",
            "queries, keys and values are stored as one matrix (qkv_proj), as in MiMo-V2.5 and Pro, for which "
            "transformers has no class; MiMo-V2-Flash stores them one by one",
        ),
    ),
    Family(
        name="mellum",
        models="JetBrains Mellum 2; any trunk with this layout",
        architectures=r"Mellum\w*",
        parts=_FLAT,
        count_keys=("num_nextn_predict_layers", "num_mtp_layers"),
        layer_kind="sliding_attention",  # the default of transformers' MellumConfig
        max_modules=1,
        engines=(
            _RUNS,
            "from 0.33: decodes with the heads through its transformers backend; refuses before",
            "runs the trunk",
            "runs the trunk",
        ),
    ),
    Family(
        name="qwen3_5",
        models="Qwen3.5 and 3.6, dense and MoE",
        architectures=r"Qwen3_5\w*",
        parts=_FLAT,
        count_keys=_QWEN_KEYS,
        centred=True,
        max_modules=1,
        engines=(_DROPS, _RUNS, _RUNS, "decodes with the heads, where the trunk has a linear-attention layer"),
    ),
    Family(
        name="qwen3_next",
        models="Qwen3-Next",
        architectures=r"Qwen3Next\w*",
        parts=_FLAT,
        count_keys=_QWEN_KEYS,
        centred=True,
        max_modules=1,
        engines=(_DROPS, _RUNS, _RUNS, _RUNS),
    ),
    Family(
        name="exaone",
        models="EXAONE-MoE, EXAONE-4.5",
        architectures=r"Exaone\w*",
        parts=_FLAT,
        own_layer=0,  # dense, where others have experts
        engines=(_DROPS, _RUNS, "MoE: decodes with the heads", "keeps the heads unused"),
    ),
    Family(
        name="ernie4_5",
        models="ERNIE-4.5 MoE",
        architectures=r"Ernie4_5\w*",
        parts={
            "enorm": "model.mtp_emb_norm.{k}",
            "hnorm": "model.mtp_hidden_norm.{k}",
            "eh_proj": "model.mtp_linear_proj.{k}",
            "layer": "model.mtp_block.{k}",
        },
        conventions={"final_norm": "none", "zero_first": True},
        own_layer=0,  # dense, where others have experts
        max_modules=1,
        engines=(_DROPS, _RUNS, _RUNS, "drops the heads at conversion"),
    ),
    Family(
        name="transformers",
        models="heads under the names that transformers' MtpModel shares among families; our own adapters",
        architectures="",
        parts=_within("mtp.layers.{k}", norm="post_norm"),
        count_keys=("num_mtp_layers",),
        engines=(_RUNS, _RUNS, "runs the trunk", "cannot convert it"),
    ),
    Family(
        name="nemotron_h",
        models="Nemotron-H, Nemotron-3",
        architectures=r"NemotronH\w*",
        parts=_within("mtp.layers.{a}", norm="") | {"norm": "mtp.layers.{b}.final_layernorm", "then": "mtp.layers.{b}"},
        max_modules=1,
        engines=(_DROPS, _RUNS, _RUNS, "MoE: decodes with the heads"),
    ),
    Family(
        name="longcat",
        models="LongCat-Flash",
        architectures=r"Longcat\w*",
        parts={
            "embedding": "model.mtp.embed_tokens",
            "enorm": "model.mtp.layers.{k}.enorm.m",
            "hnorm": "model.mtp.layers.{k}.hnorm.m",
            "eh_proj": "model.mtp.layers.{k}.eh_proj",
            "norm": "model.mtp.norm",
            "layer": "model.mtp.layers.{k}",
        },
        renames=(("transformer_layer.mlp", "mlp"),),
        max_modules=1,
        engines=(_DROPS, _RUNS, _RUNS, "cannot convert it"),
    ),
    Family(
        name="speculators",
        models="speculators, type mtp (Qwen3, Qwen3-Next, Qwen3.5 trunks)",
        architectures="",
        parts=_within("mtp_layers.{k}", norm="final_layernorm", **_MIMO_NAMES),
        count_keys=(),
        max_modules=1,
        engines=("cannot read it", "cannot read it: stitch it into its trunk", "cannot read it", "cannot convert it"),
    ),
    Family(
        name="medusa",
        models="Medusa heads (medusa_lm_head)",
        architectures=r"Medusa\w*",
        parts={"layer": "{k}"},
        count_keys=("medusa_num_heads",),
        conventions={"kind": "medusa"},
        blocked=_IMPORTED,
        engines=("cannot read it", "cannot read it since 0.33", "cannot read it", "cannot convert it"),
    ),
    Family(
        name="meta",
        models="Meta's multi-token-prediction 7B (parallel heads)",
        architectures="",
        parts={"layer": "extra_heads.{k}"},
        count_keys=("n_future_tokens",),
        conventions={"kind": "parallel", "hidden_source": "below", "final_norm": "trunk"},
        blocked=_IMPORTED,
        engines=("cannot read it", "cannot read it", "cannot read it", "cannot convert it"),
    ),
)
"""Every family; of those that share a layout the first is meant where the architecture names none."""


def family_named(name: str) -> Family:
    """The table's entry of that name."""
    return next(family for family in FAMILIES if family.name == name)


def _architectures(config: Mapping[str, Any]) -> list[str]:
    listed = config.get("architectures")
    return [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []


def family_of_architecture(config: Mapping[str, Any]) -> Family | None:
    """The family whose models have the architecture that ``config`` names, whether there are heads or not."""
    names = _architectures(config)
    return next((family for family in FAMILIES if any(re.fullmatch(family.architectures, n) for n in names)), None)


def detect_family(config: Mapping[str, Any], names: Iterable[str], num_layers: int) -> Family | None:
    """The family whose layout ``names`` have most of; among equals the one of the architecture, or the first.

    A head that lost some of its tensors is still known by the others. None where no tensor is a native head's, or where
    only the place of a layer or a norm speaks for a family that has more: it may be anybody's under a wrong prefix.
    """
    names = list(names)
    architectures = _architectures(config)

    def parts_found(family: Family) -> set[str]:
        return {place.part for name in names if (place := family.place(name, num_layers))}

    def is_named(family: Family) -> bool:
        return any(re.fullmatch(family.architectures, value) for value in architectures)

    def rank(family: Family) -> tuple[int, bool]:
        parts = parts_found(family)
        return 2 * len(parts.difference(LAYERS)) + len(parts.intersection(LAYERS)), is_named(family)

    best = max(FAMILIES, key=rank)
    found = parts_found(best)
    if found & {"enorm", "hnorm", "eh_proj"} or (found and (is_named(best) or best.parts.keys() == {"layer"})):
        return best
    return None
