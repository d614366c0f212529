"""Tiny models built from configs: random ones of several families, and hand-made ones whose text is known in advance.

Nothing is downloaded. Every model is fp32, seed 0, with the byte tokenizer's vocabulary (260 rows, EOS 256, PAD 257).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import torch
import transformers
from torch import nn
from transformers import PreTrainedTokenizerFast

from foretell.config import HeadsConfig
from foretell.models.build import build_heads
from foretell.models.sequential import SequentialHeads
from foretell.models.trunk import Trunk
from foretell.training.tokenizer import byte_tokenizer as tokenizer_of_bytes

VOCAB_SIZE = 260
EOS = 256
PAD = 257


def byte_tokenizer(chat_template: str | None = None) -> PreTrainedTokenizerFast:
    """256 byte tokens, `<eos>` = 256, `<pad>` = 257; an emoji is 4 tokens."""
    tokenizer = tokenizer_of_bytes()
    tokenizer.chat_template = chat_template
    return tokenizer


def encode(text: str) -> list[int]:
    """Token ids of ``text`` under the byte tokenizer; `<eos>` is one token."""
    return byte_tokenizer()(text, add_special_tokens=False)["input_ids"]


# Random models


def build(config: Any, seed: int = 0) -> Any:
    """A random causal LM of ``config``'s class, in eval mode; every norm gain is random too, so none is a no-op."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" in name:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def _base(**kw: Any) -> dict[str, Any]:
    values: dict[str, Any] = dict(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        initializer_range=0.1,  # not 0.02: logits far enough apart for greedy decoding
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    return values | kw


def tiny_llama(**kw: Any) -> Any:
    """A plain llama."""
    return build(transformers.LlamaConfig(**_base(**kw)))


def tiny_qwen2(**kw: Any) -> Any:
    """Attention biases."""
    values = _base(**kw)
    del values["head_dim"]
    return build(transformers.Qwen2Config(**values))


def tiny_qwen3(**kw: Any) -> Any:
    """Norms on queries and keys."""
    return build(transformers.Qwen3Config(**_base(**kw)))


def tiny_mistral(**kw: Any) -> Any:
    """Every layer looks 16 tokens back."""
    return build(transformers.MistralConfig(**_base(**{"sliding_window": 16} | kw)))


def tiny_gemma(**kw: Any) -> Any:
    """Scaled embeddings, norm gain stored as an offset from 1, tied output."""
    return build(transformers.GemmaConfig(**_base(**{"tie_word_embeddings": True} | kw)))


def tiny_gemma2(**kw: Any) -> Any:
    """Gemma with soft caps, four norms a layer, and sliding and full layers in turn."""
    values = _base(**{"tie_word_embeddings": True, "sliding_window": 16, "query_pre_attn_scalar": 16} | kw)
    return build(transformers.Gemma2Config(**values))


def tiny_gpt_oss(**kw: Any) -> Any:
    """Attention sinks of different weight, a sliding and a full layer, experts with biases."""
    model = build(transformers.GptOssConfig(**_base(**dict(num_local_experts=4, sliding_window=16) | kw)))
    generator = torch.Generator().manual_seed(5)
    for layer in model.model.layers:
        layer.self_attn.sinks.data = torch.randn(layer.self_attn.sinks.shape, generator=generator)
    return model


def tiny_gpt2() -> Any:
    """Learned positions, layers under another name: a trunk that only Medusa heads fit."""
    sizes = dict(n_embd=32, n_layer=2, n_head=2, n_positions=64)
    config = transformers.GPT2Config(vocab_size=VOCAB_SIZE, bos_token_id=None, eos_token_id=EOS, **sizes)
    return build(config)


ROUTED_EXPERTS = dict(
    moe_intermediate_size=32,
    n_routed_experts=4,
    num_experts_per_tok=2,
    n_group=1,
    topk_group=1,
    first_k_dense_replace=1,
)
"""One dense layer, then layers of four routed experts: the settings that GLM-4.5 and DeepSeek-V3 share."""


def tiny_glm4_moe(**kw: Any) -> Any:
    """One dense layer, then one with routed and shared experts."""
    return build(transformers.Glm4MoeConfig(**_base(**ROUTED_EXPERTS | kw)))


LATENT = dict(
    num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12
)
"""Latent attention."""
RECURRENT = dict(
    num_hidden_layers=4,
    linear_num_key_heads=2,
    linear_num_value_heads=2,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
)
"""Gated delta nets: three recurrent layers and one of attention."""
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)


def tiny_deepseek_v3(**kw: Any) -> Any:
    """Latent attention (key and value heads of different width) and experts."""
    values = _base(**ROUTED_EXPERTS | LATENT | kw)
    del values["head_dim"]
    return build(transformers.DeepseekV3Config(**values))


def tiny_qwen3_next(**kw: Any) -> Any:
    """Three recurrent layers and one of attention."""
    values = RECURRENT | EXPERTS | dict(shared_expert_intermediate_size=32)
    return build(transformers.Qwen3NextConfig(**_base(**values | kw)))


def tiny_qwen3_5(**kw: Any) -> Any:
    """The same layers without experts."""
    return build(transformers.Qwen3_5TextConfig(**_base(**RECURRENT | kw)))


FAMILIES = {
    "llama": tiny_llama,
    "qwen2": tiny_qwen2,
    "qwen3": tiny_qwen3,
    "mistral": tiny_mistral,
    "gemma": tiny_gemma,
    "gemma2": tiny_gemma2,
    "gpt_oss": tiny_gpt_oss,
    "glm4_moe": tiny_glm4_moe,
    "deepseek_v3": tiny_deepseek_v3,
}
"""Families that Trunk takes, by name."""


def random_heads(trunk: Trunk, seed: int = 0, draft_ids: Sequence[int] | None = None, **config: Any) -> Any:
    """Heads, sequential unless ``kind`` says otherwise, with noise on every tensor, so that no part is an identity."""
    ids = None if draft_ids is None else torch.tensor(draft_ids)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        heads = build_heads(trunk, HeadsConfig(**{"draft_vocab_size": len(draft_ids or ())} | config), ids)
        for parameter in heads.parameters():
            parameter.add_(torch.randn(parameter.shape).to(parameter) * 0.1)
    return heads.eval().requires_grad_(False)


# Hand-made models: a script, a script with second choices, a fixed distribution


def script_trunk(chain: str | Sequence[int], second: Mapping[int, int] | None = None, max_positions: int = 64) -> Trunk:
    """After ``chain[i]`` the trunk always says ``chain[i+1]``, with a logit gap of 16. Close the chain for a cycle.

    ``chain``: text (`<eos>` allowed) or token ids, distinct but for a closing repeat of the first. ``second``: token ->
    its second choice, at half weight (SCRIPT2). The tokenizer is the byte tokenizer.
    """
    ids = encode(chain) if isinstance(chain, str) else list(chain)
    assert len(set(ids[:-1])) == len(ids) - 1, "a token has two successors"
    trunk = _blank_trunk(max_positions)
    with torch.no_grad():
        for token, successor in zip(ids, ids[1:], strict=False):
            trunk.output_head.weight[successor, token] = 1.0
        for token, successor in (second or {}).items():
            trunk.output_head.weight[successor, token] = 0.5
    return trunk


def dist_trunk(probs: Mapping[int, float], max_positions: int = 64) -> Trunk:
    """The next token is drawn from ``probs`` (token id -> probability) at every position."""
    trunk = _blank_trunk(max_positions)
    _fill_distribution(trunk.output_head.weight, probs)
    return trunk


def dist_heads(trunk: Trunk, probs: Mapping[int, float], **config: Any) -> Any:
    """Heads of any kind with their own output matrices that draw from ``probs`` at every depth and position."""
    script = scripted_heads if config.get("kind", "sequential") == "sequential" else scripted_parallel_heads
    heads = script(trunk, "perfect", own_output=True, **config)
    for depth in range(1, heads.config.num_depths + 1):
        _fill_distribution(heads.output_parameters(depth)[0], probs)
    return heads


def scripted_parallel_heads(trunk: Trunk, kind_of_draft: Literal["perfect", "wrong"], **config: Any) -> Any:
    """Parallel or Medusa heads on a ``script_trunk``: always right, or always one token late.

    Every module is an identity, and its own output matrix says the token that comes k+1 steps later in the chain.
    """
    heads = build_heads(trunk, HeadsConfig(**{"own_output": True} | config))
    successors = trunk.output_head.weight.detach()
    with torch.no_grad():
        for depth, module in enumerate(heads.modules_by_depth, start=1):
            _blank(module)
            if heads.config.kind == "parallel" and not heads.attends:
                module.linear.weight.copy_(torch.eye(trunk.hidden_size))
            num_steps = depth + (kind_of_draft == "perfect")
            module.output.weight.copy_(torch.linalg.matrix_power(successors, num_steps))
    return heads.eval().requires_grad_(False)


def scripted_heads(
    trunk: Trunk,
    kind: Literal["perfect", "wrong", "mixed"],
    wrong_after: Collection[int] = (),
    **config: Any,
) -> SequentialHeads:
    """Heads on a ``script_trunk``: always right, always wrong, or wrong after the tokens in ``wrong_after``.

    The block is a residual identity; eh_proj takes the embedding half (right) or the hidden half (one token late).
    ``config`` goes to HeadsConfig, for example ``unrolled=False, num_modules=2, num_depths=2``.
    """
    heads = SequentialHeads(trunk, HeadsConfig(**config))
    size = trunk.hidden_size
    eye = torch.eye(size)
    if kind == "mixed":
        first = int(trunk.output_head.weight.sum(0).nonzero()[0])  # any token that has a successor
        other = int(trunk.output_head.weight.sum(0).nonzero()[1])
        for token in wrong_after:
            eye[:, token] = 0.0
            eye[first if token != first else other, token] = 1.0
    embedding_first = heads.config.concat == "embedding_first"
    takes_first = embedding_first == (kind != "wrong")
    with torch.no_grad():
        for module in heads.modules_by_depth:
            _blank(module)
            module.eh_proj.weight[:, slice(0, size) if takes_first else slice(size, 2 * size)] = eye
    return heads.eval().requires_grad_(False)


def _blank_trunk(max_positions: int) -> Trunk:
    config = transformers.LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=VOCAB_SIZE,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=20,
        max_position_embeddings=max_positions,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    _blank(model)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(VOCAB_SIZE))
    return Trunk(model, byte_tokenizer(), name="script")


@torch.no_grad()
def _blank(module: nn.Module) -> None:
    """Every weight 0, every norm gain 1."""
    for name, parameter in module.named_parameters():
        parameter.fill_(1.0 if "norm" in name else 0.0)


@torch.no_grad()
def _fill_distribution(weight: torch.Tensor, probs: Mapping[int, float]) -> None:
    scale = VOCAB_SIZE**-0.5  # a normed one-hot state has one entry of sqrt(260)
    weight.fill_(-30.0 * scale)
    for token, p in probs.items():
        weight[token] = torch.tensor(p).log() * scale
