"""Which families with recurrent layers can be decoded speculatively, how, and why the others cannot.

A row of the table means: the layer asks the cache for its states in transformers' usual way, and its rule is one that
Foretell knows node by node, or its pass of a single token is right. ``tests/decoding/test_recurrent.py`` tries them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from foretell.errors import UnsupportedModel

RecurrentKind = Literal["per-node", "per-token"]
"""What goes node by node through a draft: the layer's rule, or the whole layer, projections included."""

_DELTA = {"torch_chunk_gated_delta_rule": "delta", "torch_recurrent_gated_delta_rule": "delta"}
_KIMI = {"chunk_kimi_delta_attention": "delta", "recurrent_kimi_delta_attention": "delta"}
_MAMBA2 = {"mamba2_chunk_scan": "state_space_many", "mamba2_selective_state_update": "state_space_single"}


@dataclass(frozen=True)
class RecurrentFamily:
    """How one family's recurrent layers are run.

    ``layer``: name of the layer's class. ``rules``: the functions of its file that read a state and write one, with
    their kind (``decoding/recurrent_rules.py``); empty where the layer has no state but its convolution's, or where the
    whole layer goes token by token.
    """

    kind: RecurrentKind
    layer: str
    rules: dict[str, str]


FAMILIES: dict[str, RecurrentFamily] = {
    "qwen3_next": RecurrentFamily("per-node", "Qwen3NextGatedDeltaNet", _DELTA),
    "qwen3_5_text": RecurrentFamily("per-node", "Qwen3_5GatedDeltaNet", _DELTA),
    "qwen3_5_moe_text": RecurrentFamily("per-node", "Qwen3_5MoeGatedDeltaNet", _DELTA),
    "olmo_hybrid": RecurrentFamily("per-node", "OlmoHybridGatedDeltaNet", _DELTA),
    "lara_mini": RecurrentFamily("per-node", "LaraMiniGatedDeltaNet", _DELTA),
    "kimi_linear": RecurrentFamily("per-node", "KimiLinearDeltaAttention", _KIMI),
    "bailing_hybrid": RecurrentFamily("per-node", "BailingHybridDeltaAttention", _KIMI),
    "bamba": RecurrentFamily("per-node", "BambaMixer", _MAMBA2),
    "falcon_h1": RecurrentFamily("per-node", "FalconH1Mixer", _MAMBA2),
    "granitemoehybrid": RecurrentFamily("per-node", "GraniteMoeHybridMambaLayer", _MAMBA2),
    "nemotron_h": RecurrentFamily("per-node", "NemotronHMamba2Mixer", _MAMBA2),
    "zamba2": RecurrentFamily("per-node", "Zamba2MambaMixer", _MAMBA2),
    "mamba2": RecurrentFamily("per-node", "Mamba2Mixer", _MAMBA2),
    "lfm2": RecurrentFamily("per-node", "Lfm2ShortConv", {}),
    "lfm2_moe": RecurrentFamily("per-node", "Lfm2MoeShortConv", {}),
    "lfm3": RecurrentFamily("per-node", "Lfm3ShortConv", {}),
    # Mamba-1: a pass of several tokens forgets the state before it, a pass of one does not.
    "jamba": RecurrentFamily("per-token", "JambaMambaMixer", {}),
    "zamba": RecurrentFamily("per-token", "ZambaMambaMixer", {}),
    "mamba": RecurrentFamily("per-token", "MambaMixer", {}),
    "falcon_mamba": RecurrentFamily("per-token", "FalconMambaMixer", {}),
}
"""Families that work, by ``model_type`` of the text config."""

_OWN_STATE = "its state is kept outside the cache that the layers are given"

REFUSALS: dict[str, str] = {
    "recurrent_gemma": _OWN_STATE,
    "minimax": _OWN_STATE,
    "rwkv": _OWN_STATE,
    "xlstm": _OWN_STATE,
    "deepseek_v4": _OWN_STATE,
    "glm5_next_text": "it has an index of keys beside the cache, which Foretell cannot cut back",
    "qwen4_exp_text": "it has an index of keys and a window of token ids beside the cache, which cannot be cut back",
    "zaya": "its layers cut their own convolution state, so the state after a part of a draft is lost",
}
"""Families that do not work, and why, with the transformers release Foretell is made for."""

_RECURRENT_WORDS = ("linear_attention", "mamba", "recurrent", "conv", "hybrid")


def carries_state(model: Any) -> bool:
    """True where layers carry a state from token to token, whether it can be rewound or not."""
    model_type = model.config.get_text_config().model_type
    known = model_type in FAMILIES or model_type in REFUSALS
    return known or bool(_recurrent_layers(model)) or bool(getattr(model, "_is_stateful", False))


def recurrent_kind(model: Any) -> RecurrentKind | None:
    """How a rejected draft is undone in ``model``'s recurrent layers; None where it has none.

    Raises UnsupportedModel, with the reason, where it cannot be undone.
    """
    if not carries_state(model):
        return None
    model_type = model.config.get_text_config().model_type
    if model_type in FAMILIES:
        return FAMILIES[model_type].kind
    reason = REFUSALS.get(model_type, "its layers have not been tried with Foretell")
    raise UnsupportedModel(
        f"{type(model).__name__} ({', '.join(_recurrent_layers(model)) or 'stateful'}): rejected drafts cannot be "
        f"undone, because {reason}; use a model whose layers are all attention, or one of {', '.join(sorted(FAMILIES))}"
    )


def can_be_decoded(model: Any) -> bool:
    """True where rejected drafts can be undone in ``model``, or it keeps nothing that has to be."""
    return not carries_state(model) or model.config.get_text_config().model_type in FAMILIES


def _recurrent_layers(model: Any) -> list[str]:
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    return sorted(kind for kind in kinds if any(word in kind for word in _RECURRENT_WORDS))


def recurrent_family(model: Any) -> RecurrentFamily | None:
    """The table's row for ``model``; None where it has no recurrent layer. Raises as ``recurrent_kind`` does."""
    return None if recurrent_kind(model) is None else FAMILIES[model.config.get_text_config().model_type]
