"""Where an engine serves less than a checkpoint holds, or stops at it: several modules, layers it takes for others."""

from __future__ import annotations

from foretell.checkpoints.families import Family
from foretell.inspection.engine_facts import Facts

_MODULE_BY_MODULE = ("mimo_v2", "step3p5")
"""Families whose distinct modules SGLang serves one a depth; of all others it loads one."""


def several_modules(family: Family, facts: Facts) -> dict[str, str]:
    """Engines that do not serve every one of several modules."""
    count = facts.num_modules
    first = f"decodes with the first of {count} modules"
    lines = {}
    if family.name == "mimo":
        lines["vLLM"] = f"{first}, also for later tokens"
        lines["SGLang"] = f"decodes with the last of {count} modules, without a word"
    elif family.name in ("deepseek", "step3p5"):
        announced = facts.config.get("num_nextn_predict_layers") == count
        missing = f": the config lacks num_nextn_predict_layers: {count}"
        lines["vLLM"] = (
            f"decodes with all {count} modules, if asked for as many tokens" if announced else first + missing
        )
    elif family.name != "mimo_v2":  # whose line says so
        lines["vLLM"] = first
    if family.name not in (*_MODULE_BY_MODULE, "mimo"):
        lines["SGLang"] = first
    if family.name in ("qwen3_5", "qwen3_next", "glm4_moe"):
        lines["llama.cpp"] = f"stops: it takes one module, not {count}"
    return lines


def refusals(family: Family, facts: Facts) -> dict[str, str]:
    """Checkpoints that an engine's class for the family cannot read, or reads as something else."""
    lines = {}
    if family.name == "qwen3_5":
        if facts.is_without_linear_attention:
            lines["llama.cpp"] = "converts it, aborts while it decodes: no layer has linear attention"
        elif facts.num_modules == 1:
            lines["llama.cpp"] = "decodes with the heads"
        if not _interval_agrees(facts):
            lines["SGLang"] = "takes layers for others: full_attention_interval does not fit layer_types"
    if not facts.has_experts and _expects_experts(facts):
        lines["vLLM"] = "refuses the heads: it expects experts in them"
    return lines


def _expects_experts(facts: Facts) -> bool:
    """True where the layer behind the trunk's last has experts in vLLM."""
    if "Glm4MoeForCausalLM" in facts.architectures:
        return True
    is_deepseek = any(name.startswith(("DeepseekV3", "GlmMoeDsa")) for name in facts.architectures)
    first = facts.config.get("first_k_dense_replace") or 0
    return is_deepseek and bool(facts.config.get("n_routed_experts")) and facts.num_layers >= first


def _interval_agrees(facts: Facts) -> bool:
    kinds, interval = facts.config.get("layer_types"), facts.config.get("full_attention_interval", 4)
    if not isinstance(kinds, list) or not isinstance(interval, int) or interval < 1:
        return True
    return all((kind == "full_attention") == ((i + 1) % interval == 0) for i, kind in enumerate(kinds))
