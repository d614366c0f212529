"""What a trunk and each depth of its heads weigh and cost, from names and shapes alone.

FLOPs are those of one token's forward pass, 2 for every parameter that it passes through (Kaplan, arXiv 2001.08361,
2.1): of routed experts the few that a token is sent to, of the embedding none, since a look-up multiplies nothing, and
the output matrix once for the trunk and once for each depth, as each of them projects the vocabulary. Attention over
the context, which grows with its length, is left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from foretell.checkpoints.files import TensorHeader

_MATRIX = ("weight", "qweight", "weight_packed")
_TOKENS = (
    "embed_tokens",
    "word_embeddings",
    "tok_embeddings",
    "embed_in",
    "embedding",
    "embeddings",
    "wte",
    "token_embd",
)
_LOOKED_UP = (*_TOKENS, "embed_tokens_per_layer", "per_layer_token_embd", "wpe", "embed_positions", "position_embd")
_OUTPUTS = ("lm_head", "embed_out", "output")
_ONE_EXPERT = re.compile(r"(?P<group>(?:.*\.)?experts)\.(?P<number>\d+)\..+")
_ALL_EXPERTS = re.compile(
    r"(?:.*\.)?experts\.[^.]*\D[^.]*(?:\..+)?|.*_exps\.\w+|.*\.moe\.(?:gate|up|down)_proj\.weight"
)
_SIDE = re.compile(
    r"(?:model\.)?(?:visual|vision\w*|audio\w*|image\w*|multi_modal_projector|mm_projector|vit_large_projector|embed_vision|embed_audio)\."
)
_BESIDE_WEIGHTS = """
SCB g_idx qzeros scales weight_shape weight_zero_point absmax quant_map input_scale output_scale k_scale v_scale
weight_global_scale input_global_scale inv_freq draft_ids
"""
_NO_PARAMETERS = frozenset(_BESIDE_WEIGHTS.split())
_SCALES = ("_scales", "_scale_inv")
_PACKED = ("qweight", "weight_packed")
_NUM_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts")


class Experts(NamedTuple):
    """Routed experts of a layer, and those that one token is sent to; 0 where the config does not say."""

    num: int = 0
    per_token: int = 0


@dataclass(frozen=True)
class Cost:
    """``parameters``: its own. ``copies``: those that only repeat the trunk's. ``active``: those that one token passes
    through, the output matrix among them. ``flops_per_token``: forward, without attention over the context.
    ``share_of_trunk``: of the trunk's FLOPs, None for the trunk itself and where the trunk is not known.
    """

    parameters: int
    copies: int
    active: int
    flops_per_token: int
    share_of_trunk: float | None = None


@dataclass(frozen=True)
class Costs:
    """``depths``: one entry a module of the heads; a single one serves every depth. ``side_parameters``: towers for
    images and sound, not counted with the trunk.
    """

    trunk: Cost | None
    depths: list[Cost]
    side_parameters: int = 0


def experts_of(config: Mapping[str, Any]) -> Experts:
    """What a config says of routed experts."""
    return Experts(_first_count(config, _NUM_EXPERTS), _first_count(config, _PER_TOKEN))


def parameter_counts(headers: Mapping[str, TensorHeader], bits: int | None) -> dict[str, int]:
    """Parameters by tensor: scales of quantised matrices are none, packed numbers of ``bits`` count one by one."""
    return {name: _count(name, header, bits) for name, header in headers.items()}


def trunk_cost(counts: Mapping[str, int], experts: Experts) -> tuple[Cost | None, int]:
    """Cost of a trunk, from parameters by tensor name, and the parameters of its towers for images and sound, which a
    token of text does not pass through. None where no tensor is the language model's.
    """
    text = {name: count for name, count in counts.items() if not _SIDE.match(name)}
    side = sum(counts.values()) - sum(text.values())
    if not text:
        return None, side
    body = {name: count for name, count in text.items() if not _is_output(name)}
    return _cost(sum(text.values()), 0, _active(body, experts) + output_matrix(text)), side


def module_costs(
    modules: Iterable[Mapping[str, int]],
    experts: Experts,
    projection: int,
    trunk: Cost | None,
    *,
    copies: Collection[str] = (),
    own_outputs: Collection[str] = (),
) -> list[Cost]:
    """Costs of heads' modules, each from parameters by tensor name.

    ``projection``: parameters of the output matrix that a module shares with the trunk; one with a matrix among
    ``own_outputs`` passes through that. ``copies``: tensors that repeat the trunk's.
    """
    found = []
    for module in modules:
        own = {name: count for name, count in module.items() if name not in copies}
        shared = 0 if any(name in own_outputs for name in own) else projection
        repeated = sum(module.values()) - sum(own.values())
        found.append(_cost(sum(own.values()), repeated, _active(own, experts) + shared, trunk))
    return found


def output_matrix(trunk: Mapping[str, int]) -> int:
    """Parameters that project the vocabulary: the output matrix, or the embedding where the two are tied."""
    found = [n for name, n in trunk.items() if _is_output(name)]
    return max(found or [n for name, n in trunk.items() if _is_token_embedding(name)], default=0)


def has_output_matrix(names: Iterable[str]) -> bool:
    """True where an output matrix is stored beside the embedding."""
    return any(_is_output(name) for name in names)


def embedding_of(names: Iterable[str]) -> str | None:
    """Name of the trunk's token embedding; None where it has none."""
    return next((name for name in names if _is_token_embedding(name) and not _SIDE.match(name)), None)


def _matrix_of(name: str) -> str:
    """Last word of the module whose matrix ``name`` is; "" for another tensor."""
    module, _, kind = name.rpartition(".")
    return module.rpartition(".")[2] if kind in _MATRIX else ""


def _is_token_embedding(name: str) -> bool:
    return _matrix_of(name) in _TOKENS


def _is_output(name: str) -> bool:
    """``output`` alone is Llama's and GGUF's name; deeper ones are those of other layers."""
    if not any(word in name for word in _OUTPUTS):  # asked of every expert of a large model
        return False
    matrix = _matrix_of(name)
    return matrix in _OUTPUTS and (matrix != "output" or name.count(".") < 3 and not name.startswith("mtp."))


def _cost(parameters: int, copies: int, active: int, trunk: Cost | None = None) -> Cost:
    share = active / trunk.active if trunk and trunk.active else None
    return Cost(parameters, copies, active, 2 * active, share)


def _active(counts: Mapping[str, int], experts: Experts) -> int:
    """Parameters that one token passes through; all experts where the config does not say how many."""
    total = 0.0
    by_group: dict[str, dict[str, int]] = {}
    for name, count in counts.items():
        is_routed = "experts." in name or "_exps." in name or ".moe." in name
        if is_routed and (found := _ONE_EXPERT.fullmatch(name)):
            group = by_group.setdefault(found["group"], {})
            group[found["number"]] = group.get(found["number"], 0) + count
        elif is_routed and _ALL_EXPERTS.fullmatch(name):
            total += count * _share(experts.per_token, experts.num)
        elif _matrix_of(name) not in _LOOKED_UP:
            total += count
    for group in by_group.values():
        total += sum(group.values()) * _share(experts.per_token, len(group))
    return round(total)


def _share(per_token: int, count: int) -> float:
    return min(per_token / count, 1.0) if per_token and count else 1.0


def _count(name: str, header: TensorHeader, bits: int | None) -> int:
    kind = name.rpartition(".")[2]
    if kind in _NO_PARAMETERS or "weight_scale" in kind or kind.endswith(_SCALES) or ".weight." in name:
        return 0
    stored = math.prod(header.shape)
    packed = kind in _PACKED or kind.endswith("_blocks") or (bits and bits < 8 and header.dtype in ("U8", "I8"))
    if packed and (whole_numbers := re.fullmatch(r"[IU](\d+)", header.dtype)):
        return stored * int(whole_numbers[1]) // (bits or 4)
    return stored


def _first_count(config: Mapping[str, Any], keys: Iterable[str]) -> int:
    for key in keys:
        value = config.get(key)
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
