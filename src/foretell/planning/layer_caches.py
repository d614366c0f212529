"""What each layer keeps of the context, and what looking at it costs, from a config of transformers.

attention (MHA, GQA)   2 x kv heads x head size numbers a token;  4 x heads x head size FLOPs a (query, key)
latent attention       kv_lora_rank + qk_rope_head_dim numbers a token (DeepSeek-V2, arXiv 2405.04434, 2.1.2);
                       2 x heads x (2 x kv_lora_rank + qk_rope_head_dim) FLOPs, keys and values left compressed
gated delta net        value heads x key size x value size numbers, and the last inputs of its convolution;
                       7 FLOPs a number and token: decay, read, correct, write (arXiv 2412.06464, eq. 10)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretell.errors import UnsupportedModel

_DELTA_FLOPS = 7


@dataclass(frozen=True)
class LayerCache:
    """One kind of layer. ``num_layers`` of it; ``token_numbers``: kept of every token of the context, of the last
    ``window`` where that is given; ``state_numbers``: kept of a row, however long; ``pair_flops``: of one query with
    one key, over all heads; ``state_flops``: of one token.
    """

    kind: str
    num_layers: int = 1
    token_numbers: int = 0
    window: int | None = None
    state_numbers: int = 0
    pair_flops: int = 0
    state_flops: int = 0

    def seen(self, context: float) -> float:
        """Tokens of the context that a query looks at."""
        return context if self.window is None else min(context, self.window)

    def row_numbers(self, context: float) -> float:
        """Numbers that a row of so many tokens keeps in all layers of this kind."""
        return self.num_layers * (self.token_numbers * self.seen(context) + self.state_numbers)

    def flops(self, context: float) -> float:
        """FLOPs of one token over the context, in all layers of this kind."""
        return self.num_layers * (self.pair_flops * self.seen(context) + self.state_flops)


def layer_caches(config: Any, name: str) -> list[LayerCache]:
    """Every kind of layer of the text model that ``config`` describes. Raises UnsupportedModel for an unknown kind."""
    kinds = kinds_of(config)
    found = []
    for kind in dict.fromkeys(kinds):
        count = kinds.count(kind)
        if kind in ("full_attention", "sliding_attention", "chunked_attention"):
            window = None if kind == "full_attention" else _window(config, kind, name)
            found.append(_attention(config, kind, count, window))
        elif kind == "linear_attention" and hasattr(config, "linear_num_value_heads"):
            found.append(_delta_net(config, count))
        else:
            raise UnsupportedModel(
                f"{name}: layers of kind {kind!r} cannot be planned; those that can: full_attention, "
                "sliding_attention, chunked_attention, linear_attention (gated delta net)"
            )
    return found


def kinds_of(config: Any) -> list[str]:
    """The kind of every layer that keeps something, first to last: of LongCat-Flash's, two each."""
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
    if kinds:
        return [str(kind) for kind in kinds]
    has_window = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    return ["sliding_attention" if has_window else "full_attention"] * int(config.num_hidden_layers)


def head_cache(caches: list[LayerCache]) -> LayerCache:
    """What one layer of heads keeps: a block of the trunk's own kind, with full attention where it has any."""
    like = next((cache for cache in caches if cache.kind == "full_attention"), caches[-1])
    return LayerCache(
        like.kind, 1, like.token_numbers, like.window, like.state_numbers, like.pair_flops, like.state_flops
    )


def _window(config: Any, kind: str, name: str) -> int:
    key = "attention_chunk_size" if kind == "chunked_attention" else "sliding_window"
    value = getattr(config, key, None)
    if not isinstance(value, int) or value < 1:
        raise UnsupportedModel(
            f"{name}: config's {key} is {value!r}, but it has {kind} layers; give a positive integer"
        )
    return value


def _attention(config: Any, kind: str, count: int, window: int | None) -> LayerCache:
    num_heads = int(config.num_attention_heads)
    if rank := getattr(config, "kv_lora_rank", None):
        rope = int(config.qk_rope_head_dim)
        return LayerCache(kind, count, rank + rope, window, pair_flops=2 * num_heads * (2 * rank + rope))
    num_kv_heads = int(getattr(config, "num_key_value_heads", None) or num_heads)
    head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // num_heads)
    return LayerCache(kind, count, 2 * num_kv_heads * head_dim, window, pair_flops=4 * num_heads * head_dim)


def _delta_net(config: Any, count: int) -> LayerCache:
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    values = config.linear_num_value_heads * config.linear_value_head_dim
    state = config.linear_num_value_heads * config.linear_key_head_dim * config.linear_value_head_dim
    convolution = (config.linear_conv_kernel_dim - 1) * (2 * keys + values)
    return LayerCache("linear_attention", count, state_numbers=state + convolution, state_flops=_DELTA_FLOPS * state)
