"""What engines will do with one checkpoint: the family's line in the table, made precise by what lies in the files.

Sources: the loaders of transformers 5.24, vLLM 0.33, SGLang 0.5.23 and llama.cpp (September 2026), as read for the
table. A line says what happens when the engine is asked for MTP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foretell.checkpoints.families import ENGINES, FAMILIES, Family
from foretell.checkpoints.native import NativeClaim

RUNS = "decodes with the heads"
ALONE = "runs the trunk alone"
DROPS = "runs the trunk, drops the heads without a word"
WARNS = "runs the trunk, reports the heads as unexpected"
PLAIN = "runs it as a plain model, where it knows the architecture"

UNANNOUNCED = ("qwen3_next", "mimo_v2", "speculators", "medusa", "meta")
"""Families whose published checkpoints announce no number of heads: loaders have it built in, or read no such key."""

_BY_ARCHITECTURE = (
    (r"DeepseekV32\w*|GlmMoeDsa\w*", "llama.cpp", RUNS),
    (r"DeepseekV3\w*", "llama.cpp", "drops the heads when it converts"),
    (r"PanguUltraMoE\w*|KimiK3\w*", "llama.cpp", "does not know this architecture"),
    (r"GlmOcr\w*", "llama.cpp", "converts the heads, and leaves them unused"),
    (r"BailingMoeV3\w*", "llama.cpp", RUNS),
    (r"Bailing\w*", "llama.cpp", "converts the heads, and leaves them unused"),
    (r"BailingMoeV2ForCausalLM", "vLLM", ALONE),
    (r"ExaoneMo[eE]\w*", "SGLang", RUNS),
    (r"Exaone4_5\w*", "SGLang", ALONE),
)
"""Within a family: (architecture, engine, what it does). The first that fits counts."""

_FOUND_BEHIND = {"deepseek_v3": (61,), "glm4_moe": (46, 92)}
"""model_type -> numbers of trunk layers behind which transformers looks for heads; elsewhere it finds none."""

_DROPPED_BEHIND = {
    "deepseek_v32": (61,),
    "glm4_moe_lite": (47,),
    "glm_moe_dsa": (78,),
    "glm_ocr": (16,),
    "hy_v3": (80,),
}
"""The same for model types whose heads transformers only ignores."""

_FLAT = ("mellum", "qwen3_5", "qwen3_next", "exaone")
_MODULE_BY_MODULE = ("mimo_v2", "step3p5")
"""Families whose distinct modules SGLang serves one a depth; of all others it loads one."""

_GGUF_RUNS = [
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "deepseek32",
    "deepseek4",
    "glm4moe",
    "glmdsa",
    "glm5next",
    "step35",
    "mimo2",
    "hyv3",
    "bailingmoe3",
    "cohere2moe",
    "nemotronhmoe",
]
_GGUF_FAMILIES = (
    (r"qwen35\w*", "qwen3_5"),
    (r"qwen3next", "qwen3_next"),
    (r"deepseek\w*|glmdsa", "deepseek"),
    (r"glm4\w*", "glm4_moe"),
    (r"step35", "step3p5"),
    (r"mimo2", "mimo_v2"),
    (r"hyv3", "hy_v3"),
    (r"bailing\w*", "bailing"),
    (r"exaone\w*", "exaone"),
    (r"nemotronh\w*", "nemotron_h"),
)


@dataclass(frozen=True)
class Facts:
    """What decides between engines' ways. ``config``: settings of the language model. ``num_modules``: of heads, by
    their tensors. ``has_trunk``: False for heads alone. ``has_experts``: some of the heads' tensors are experts.
    """

    config: Mapping[str, Any]
    num_layers: int
    num_modules: int
    claim: NativeClaim
    has_trunk: bool = True
    has_experts: bool = False

    @property
    def architectures(self) -> list[str]:
        """As config.json names them; empty where it does not."""
        named = self.config.get("architectures")
        return [str(name) for name in named] if isinstance(named, list) else []

    @property
    def model_type(self) -> str:
        """The language model's."""
        return str(self.config.get("model_type", ""))

    @property
    def has_own_code(self) -> bool:
        """True where the folder brings its own modeling file."""
        return isinstance(self.config.get("auto_map"), Mapping)

    @property
    def is_without_linear_attention(self) -> bool:
        """True where the config says that every layer attends to all positions."""
        kinds = self.config.get("layer_types")
        if isinstance(kinds, list) and kinds:
            return all(kind == "full_attention" for kind in kinds[: self.num_layers])
        return self.config.get("full_attention_interval") == 1


def family_of_architecture(config: Mapping[str, Any]) -> Family | None:
    """The family that the architecture belongs to, for a checkpoint that has lost its heads."""
    named = config.get("architectures")
    for name in named if isinstance(named, list) else ():
        for family in FAMILIES:
            if family.architectures and re.fullmatch(family.architectures, str(name)):
                return family
    return None


def engine_lines(family: Family | None, facts: Facts) -> dict[str, str]:
    """One sentence for each of ``ENGINES``; ``family`` is that of the heads, or of the architecture without them."""
    if not facts.num_modules:
        return _lost(family) if facts.claim.num_layers else dict.fromkeys(ENGINES, PLAIN)
    if family is None:
        return dict.fromkeys(ENGINES, f"{ALONE}: these heads have no layout that it knows")
    lines = dict(zip(ENGINES, family.engines, strict=True))
    if not facts.has_trunk:
        return lines if not family.architectures else dict.fromkeys(ENGINES, "cannot run heads without their trunk")
    lines["transformers"] = _transformers(family, facts)
    if not family.architectures:
        if family.name == "transformers" and not facts.config.get("num_mtp_layers"):
            lines["vLLM"] = f"{ALONE}: the config lacks num_mtp_layers"
        return lines
    if not any(re.fullmatch(family.architectures, name) for name in facts.architectures):
        return lines | _by_layout_alone(family, facts)
    for pattern, engine, line in reversed(_BY_ARCHITECTURE):
        if any(re.fullmatch(pattern, name) for name in facts.architectures):
            lines[engine] = line
    if not facts.claim.num_layers and family.name not in UNANNOUNCED:
        needed = f"{ALONE}: the config lacks {family.count_keys[0]}: {facts.num_modules}"
        return lines | dict.fromkeys(ENGINES[1:], needed)
    if facts.num_modules > 1:
        lines |= _several(family, facts)
    return lines | _refusals(family, facts)


def gguf_family(architecture: str) -> str:
    """Name of the family that a GGUF file's architecture belongs to, or ""."""
    plain = re.sub(r"[-_]", "", architecture)
    return next((name for pattern, name in _GGUF_FAMILIES if re.fullmatch(pattern, plain)), "")


def gguf_line(architecture: str, num_modules: int, num_claimed: int, is_recurrent: bool) -> str:
    """What llama.cpp does with a GGUF file."""
    plain = re.sub(r"[-_]", "", architecture)
    if not num_modules:
        return "stops at the missing heads" if num_claimed else PLAIN
    if not num_claimed:
        return "stops at tensors that the metadata does not announce"
    if plain.startswith("qwen35") and not is_recurrent:
        return "aborts while it decodes: no layer has linear attention"
    if num_modules > 1 and plain.startswith(("qwen3", "glm4")):
        return f"stops: it takes one module, and the file holds {num_modules}"
    if plain in _GGUF_RUNS or plain == "deepseek2":
        return RUNS
    return f"{ALONE}: it keeps heads of this architecture unused"


def _lost(family: Family | None) -> dict[str, str]:
    is_deepseek = family is not None and family.name == "deepseek"
    return {
        "transformers": f"{ALONE}; use_mtp stops, as weights are missing",
        "vLLM": "stops at the missing weights" if is_deepseek else "drafts from random weights: right text, no gain",
        "SGLang": "drafts from weights that nobody set: right text, no gain",
        "llama.cpp": f"{ALONE}; convert it with --no-mtp",
    }


def _transformers(family: Family, facts: Facts) -> str:
    one_by_one = "decodes with the heads, one row at a time (use_mtp)"
    if facts.has_own_code and family.name in ("deepseek", "glm4_moe", "transformers", *_FLAT):
        return "runs the code in the folder (trust_remote_code)"
    if family.name in ("deepseek", "glm4_moe", "hy_v3"):
        known, dropped = _FOUND_BEHIND.get(facts.model_type, ()), _DROPPED_BEHIND.get(facts.model_type, ())
        if facts.num_layers in known:
            return one_by_one
        if facts.num_layers in dropped:
            return DROPS
        numbers = known or dropped
        behind = f": it expects them behind layer {' or '.join(map(str, numbers))}" if numbers else ""
        return f"{WARNS}{behind}"
    if family.name in ("mellum", "transformers") and facts.model_type == "mellum":
        return one_by_one
    if family.name in _FLAT:
        ignores = ("qwen3_next", "qwen3_5", "mellum", "exaone", "olmo_hybrid", "qwen4", "granite")
        return DROPS if facts.model_type.startswith(ignores) else WARNS
    return WARNS if family.name == "transformers" else family.engines[0]


def _by_layout_alone(family: Family, facts: Facts) -> dict[str, str]:
    """Heads in a layout whose engines' classes serve other architectures."""
    name = ", ".join(facts.architectures) or "a model without a named architecture"
    lines = dict.fromkeys(ENGINES[1:], f"{ALONE}: it has no heads for {name}")
    if family.name in ("deepseek", "mellum", "qwen3_5", "qwen3_next"):
        missing = "" if facts.config.get("num_mtp_layers") else ", if the config had num_mtp_layers"
        code = ", with the folder's code (--trust-remote-code)" if facts.has_own_code else ""
        lines["vLLM"] = f"{RUNS} through its transformers backend{code}{missing}"
    if family.name in _FLAT and any(name.startswith("Qwen3Moe") for name in facts.architectures):
        lines["SGLang"] = RUNS
    return lines


def _several(family: Family, facts: Facts) -> dict[str, str]:
    """Engines that do not serve every one of several modules."""
    count = facts.num_modules
    first = f"decodes with the first of {count} modules"
    lines = {}
    if family.name == "mimo":
        lines["vLLM"] = f"stops when asked for 2 tokens or more: it takes one module, not {count}"
        lines["SGLang"] = f"decodes with the last of {count} modules, without a word"
    elif family.name in ("deepseek", "step3p5"):
        announced = facts.config.get("num_nextn_predict_layers") == count
        missing = f": the config lacks num_nextn_predict_layers: {count}"
        lines["vLLM"] = (
            f"decodes with all {count} modules, if asked for as many tokens" if announced else first + missing
        )
    else:
        lines["vLLM"] = first
    if family.name not in (*_MODULE_BY_MODULE, "mimo"):
        lines["SGLang"] = first
    if family.name in ("qwen3_5", "qwen3_next", "glm4_moe"):
        lines["llama.cpp"] = f"stops: it takes one module, not {count}"
    return lines


def _refusals(family: Family, facts: Facts) -> dict[str, str]:
    """Checkpoints that an engine's class for the family cannot read, or reads as something else."""
    lines = {}
    if family.name == "qwen3_5":
        if facts.is_without_linear_attention:
            lines["llama.cpp"] = "converts it, aborts while it decodes: no layer has linear attention"
        if not _interval_agrees(facts):
            lines["SGLang"] = "takes layers for others: full_attention_interval does not fit layer_types"
    if family.name == "glm4_moe" and not facts.has_experts:
        if any(name.startswith("Glm4MoeForCausalLM") for name in facts.architectures):
            lines["vLLM"] = "refuses the heads: it expects experts in them"
    return lines


def _interval_agrees(facts: Facts) -> bool:
    kinds, interval = facts.config.get("layer_types"), facts.config.get("full_attention_interval", 4)
    if not isinstance(kinds, list) or not isinstance(interval, int) or interval < 1:
        return True
    return all((kind == "full_attention") == ((i + 1) % interval == 0) for i, kind in enumerate(kinds))
