"""What llama.cpp does with a GGUF file that holds native heads. Source: its src/models, September 2026."""

from __future__ import annotations

import re

_RUN = (
    r"qwen35(moe)?|qwen3next|deepseek(2|32|4)|glm4moe|glmdsa|glm5next|step35|mimo2|hyv3"
    r"|bailingmoe3|cohere2moe|nemotronhmoe"
)
"""Architectures with a graph for their heads; the names are without hyphens and underlines."""

_FAMILIES = (
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


def gguf_family(architecture: str) -> str:
    """Name of the family that a GGUF file's architecture belongs to, or ""."""
    plain = re.sub(r"[-_]", "", architecture)
    return next((name for pattern, name in _FAMILIES if re.fullmatch(pattern, plain)), "")


def gguf_line(architecture: str, num_modules: int, num_claimed: int, is_recurrent: bool) -> str:
    """What llama.cpp does with a GGUF file."""
    plain = re.sub(r"[-_]", "", architecture)
    if not num_modules:
        return "stops at the missing heads" if num_claimed else "runs it as a plain model"
    if not num_claimed:
        return "stops at tensors that the metadata does not announce"
    if plain.startswith("qwen35") and not is_recurrent:
        return "aborts while it decodes: no layer has linear attention"
    if num_modules > 1 and plain.startswith(("qwen3", "glm4")):
        return f"stops: it takes one module, and the file holds {num_modules}"
    if re.fullmatch(_RUN, plain):
        return "decodes with the heads"
    return "runs the trunk alone: it keeps heads of this architecture unused"
