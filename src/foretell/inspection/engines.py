"""What engines will do with one checkpoint: the family's line in the table, made precise by what lies in the files.

Sources: the loaders of transformers 5.24, vLLM 0.33, SGLang 0.5.23 and llama.cpp (September 2026), as read for the
table. A line says what happens when the engine is asked for MTP.
"""

from __future__ import annotations

import re

from foretell.checkpoints.families import ENGINES, Family
from foretell.inspection.engine_facts import Facts
from foretell.inspection.engine_limits import refusals, several_modules

RUNS = "decodes with the heads"
ALONE = "runs the trunk alone"
DROPS = "runs the trunk, drops the heads without a word"
WARNS = "runs the trunk, reports the heads as unexpected"
ONE_BY_ONE = "decodes with the heads, one row at a time (use_mtp)"
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
    (r"Step3p7\w*", "transformers", f"{ALONE}; use_mtp stops, as it misses the heads' final norms"),
    (r"Step3p5\w*", "transformers", "does not know this architecture, but by code in the folder"),
    (r"MiMoV2(?!Flash)\w*", "transformers", "does not know this architecture, but by code in the folder"),
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
        lines |= several_modules(family, facts)
    return lines | refusals(family, facts)


def _lost(family: Family | None) -> dict[str, str]:
    stops = family is not None and family.name in ("deepseek", "mimo", "qwen3_5", "qwen3_next")  # two of them: run
    takes_heads = family is not None and family.engines[0] == RUNS
    return {
        "transformers": f"{ALONE}; use_mtp stops, as weights are missing" if takes_heads else ALONE,
        "vLLM": "stops at the missing weights" if stops else "drafts from random weights: right text, no gain",
        "SGLang": "drafts from weights that nobody set: right text, no gain",
        "llama.cpp": f"{ALONE}; convert it with --no-mtp",
    }


def _transformers(family: Family, facts: Facts) -> str:
    if facts.has_own_code and family.name in ("deepseek", "glm4_moe", "transformers", *_FLAT):
        return "runs the code in the folder (trust_remote_code)"
    if family.name in ("deepseek", "glm4_moe", "hy_v3"):
        known, dropped = _FOUND_BEHIND.get(facts.model_type, ()), _DROPPED_BEHIND.get(facts.model_type, ())
        if facts.num_layers in known:
            return ONE_BY_ONE
        if facts.num_layers in dropped:
            return DROPS
        numbers = known or dropped
        behind = f": it expects them behind layer {' or '.join(map(str, numbers))}" if numbers else ""
        return f"{WARNS}{behind}"
    if family.name in ("mellum", "transformers") and facts.model_type == "mellum":
        return ONE_BY_ONE
    if family.name in _FLAT:
        ignores = ("qwen3_next", "qwen3_5", "mellum", "exaone", "olmo_hybrid", "qwen4", "granite")
        return DROPS if facts.model_type.startswith(ignores) else WARNS
    return WARNS if family.name == "transformers" else family.engines[0]


def _by_layout_alone(family: Family, facts: Facts) -> dict[str, str]:
    """Heads in a layout whose engines' classes serve other architectures."""
    name = ", ".join(facts.architectures) or "a model without a named architecture"
    lines = dict.fromkeys(ENGINES[1:], f"{ALONE}: it has no heads for {name}")
    if facts.has_own_code:
        lines["llama.cpp"] = f"cannot convert it: it knows no {name}"
    if family.name in ("deepseek", "mellum", "qwen3_5", "qwen3_next"):
        missing = "" if facts.config.get("num_mtp_layers") else ", if the config had num_mtp_layers"
        code = ", with the folder's code (--trust-remote-code)" if facts.has_own_code else ""
        lines["vLLM"] = f"from 0.33: {RUNS} through its transformers backend{code}{missing}; refuses before"
    if family.name in _FLAT and any(name.startswith("Qwen3Moe") for name in facts.architectures):
        lines["SGLang"] = RUNS
    return lines
