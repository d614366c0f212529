"""RecurrentStates under transformers' own decoders: after any rejection, text and states as if nothing was drafted."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from foretell.decoding.recurrent import RecurrentStates
from foretell.errors import UnsupportedModel
from foretell.models.recurrent_support import FAMILIES, REFUSALS, recurrent_kind
from tests.fixtures import VOCAB_SIZE, build, tiny_llama, tiny_qwen3_next

NUM_TOKENS = 60
TOLERANCE = 1e-5
LONG_PROMPT = [5, 90, 14, 77, 3, 61, 180, 9, 33, 201, 44, 8, 17, 2, 60, 19, 4, 111, 5]
"""More than ``recurrent_nodes.LONG``: it goes through the family's own rule for many tokens."""

PROMPTS = [[7, 99, 3, 250, 31, 8, 120], [200, 11], LONG_PROMPT]


class HybridCache:
    """Keys and values as plain lists of entries, next to a RecurrentStates; what an engine's cache will be."""

    def __init__(self, model: Any) -> None:
        self.recurrent = RecurrentStates(model)
        self.num_keys = 0
        for name in ("get_conv_state", "update_conv_state", "get_recurrent_state", "update_recurrent_state"):
            setattr(self, name, getattr(self.recurrent, name))
        self.is_recording_past = self.recurrent.is_recording_past
        self.entries: dict[tuple[int, int], torch.Tensor] = {}
        self.rows: list[int] = []
        self.starts: list[int] = []

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        new = torch.cat([keys, values], dim=-1)
        seen = new.new_zeros(new.shape[0], new.shape[1], self.num_keys, new.shape[-1])
        for b, (row, start) in enumerate(zip(self.rows, self.starts, strict=True)):
            old = self.entries.get((layer_idx, row), new[b, :, :0])[:, :start]
            own = torch.cat([old, new[b]], dim=1)
            self.entries[layer_idx, row] = own
            seen[b, :, : own.shape[1]] = own[:, : self.num_keys]
        return seen.split([keys.shape[-1], values.shape[-1]], dim=-1)


class Decoding:
    """Greedy decoding of many rows, in passes of one rectangle; the row's cache holds ``lengths[row]`` tokens."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]]) -> None:
        self.model = model
        self.cache = HybridCache(model)
        self.texts = [list(prompt) for prompt in prompts]
        self.lengths = [0] * len(prompts)

    @torch.no_grad()
    def run(self, rows: Sequence[int], nodes: Sequence[Sequence[int]], certain: Sequence[int]) -> list[list[int]]:
        """One pass; the most likely token after every node. Shorter rows repeat their last token."""
        counts = [len(own) for own in nodes]
        width = max(counts)
        starts = [self.lengths[row] for row in rows]
        self.cache.rows, self.cache.starts, self.cache.num_keys = list(rows), starts, max(starts) + width
        self.cache.recurrent.begin(rows, counts, certain)
        ids = torch.tensor([[*own, *[own[-1]] * (width - len(own))] for own in nodes])
        positions = torch.tensor(starts)[:, None] + torch.arange(width)
        allowed = torch.arange(self.cache.num_keys) <= positions[:, None, :, None]
        kinds = ("linear_attention", "conv", "mlp", "moe", "hybrid")
        masks: Any = {"full_attention": allowed, "sliding_attention": allowed, **dict.fromkeys(kinds)}
        if set(self.model.config.layer_types) == {"linear_attention"}:
            masks = None
        decoder = self.model.get_decoder()
        output = decoder(input_ids=ids, position_ids=positions, attention_mask=masks, use_cache=True, cache=self.cache)
        best = self.model.get_output_embeddings()(output.last_hidden_state).argmax(-1).tolist()
        return [own[:count] for own, count in zip(best, counts, strict=True)]

    def step(self, drafts: Mapping[int, Sequence[int]], polluted: bool = False) -> None:
        """Advance these rows. ``polluted``: the whole draft stays in the states, accepted or not."""
        rows = list(drafts)
        pending = [self.texts[row][self.lengths[row] :] for row in rows]
        nodes = [[*own, *drafts[row]] for row, own in zip(rows, pending, strict=True)]
        bests = self.run(rows, nodes, [len(own) for own in pending])
        for row, own, chain, best in zip(rows, pending, nodes, bests, strict=True):
            said, draft = best[len(own) - 1 :], drafts[row]
            num_accepted = next((n for n, token in enumerate(draft) if said[n] != token), len(draft))
            self.texts[row] += said[: num_accepted + 1]
            self.lengths[row] += len(own) + num_accepted
            self.cache.recurrent.commit(row, len(chain) if polluted else len(own) + num_accepted)


def plain(model: Any) -> Decoding:
    """All rows, token by token."""
    decoding = Decoding(model, PROMPTS)
    for _ in range(NUM_TOKENS):
        decoding.step(dict.fromkeys(range(len(PROMPTS)), ()))
    return decoding


def speculative(model: Any, truth: Sequence[Sequence[int]], polluted: bool = False) -> Decoding:
    """Drafts of 0 to 5 tokens, right for a random part, until every row is as long as its truth."""
    dice = random.Random(0)
    decoding = Decoding(model, [own[:-NUM_TOKENS] for own in truth])
    decoding.step({row: [] for row in range(len(truth))})
    while True:
        drafts = {}
        for row, (text, true) in enumerate(zip(decoding.texts, truth, strict=True)):
            draft = [*true[len(text) :][: dice.randrange(4)], *(dice.randrange(200) for _ in range(dice.randrange(3)))]
            if len(text) < len(true):
                drafts[row] = draft[: len(true) - len(text) - 1]
        if not drafts:
            return decoding
        decoding.step(drafts, polluted)


def tiny(config: str, **kw: Any) -> Any:
    """A random model of four layers."""
    sizes = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4)
    values = sizes | dict(num_key_value_heads=2, initializer_range=0.1, tie_word_embeddings=False) | kw
    return build(getattr(transformers, config)(vocab_size=VOCAB_SIZE, eos_token_id=256, pad_token_id=257, **values))


DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=8)
LATENT = dict(num_key_value_heads=4, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
TWICE = ["linear_attention", "full_attention"] * 2

MODELS: dict[str, Callable[[], Any]] = {
    "qwen3_next": tiny_qwen3_next,
    "qwen3_5_text": lambda: tiny("Qwen3_5TextConfig", head_dim=16, **DELTA),
    "kimi_linear": lambda: tiny(
        "KimiLinearConfig", **LATENT, **EXPERTS, linear_num_heads=4, linear_head_dim=16, layer_types=TWICE
    ),
    "falcon_h1": lambda: tiny(
        "FalconH1Config", mamba_n_heads=8, mamba_d_head=16, mamba_d_ssm=128, mamba_d_state=16, mamba_chunk_size=8
    ),
    # A least time step that matters: transformers' own decoding forgets it.
    "nemotron_h": lambda: tiny(
        "NemotronHConfig", head_dim=16, mamba_num_heads=8, mamba_head_dim=16, ssm_state_size=16, n_groups=2,
        chunk_size=8, time_step_min=0.5, layers_block_type=["linear_attention", "full_attention", "mlp"] * 2,
        num_hidden_layers=6,
    ),
    "lfm2": lambda: tiny("Lfm2Config", layer_types=["conv", "full_attention"] * 2),
    "jamba": lambda: tiny("JambaConfig", mamba_dt_rank=4, attn_layer_period=2, attn_layer_offset=1, num_experts=1),
}  # fmt: skip


@pytest.fixture(scope="module", params=list(MODELS))
def case(request: pytest.FixtureRequest) -> tuple[Any, Decoding]:
    model = MODELS[request.param]()
    assert model.config.get_text_config().model_type == request.param
    return model, plain(model)


def assert_same(found: Decoding, truth: Decoding) -> None:
    for row, text in enumerate(found.texts):
        assert text == truth.texts[row]
        assert_same_states(found.cache.recurrent.states_of(row), truth.cache.recurrent.states_of(row))


def assert_same_states(found: dict[Any, torch.Tensor], expected: dict[Any, torch.Tensor]) -> None:
    assert found.keys() == expected.keys() and found
    for key, state in found.items():
        scale = max(1.0, expected[key].abs().max().item())
        assert (state - expected[key]).abs().max().item() < TOLERANCE * scale, key


@torch.no_grad()
def test_plain_decoding_is_the_models_own(case: tuple[Any, Decoding]) -> None:
    model, truth = case
    for text in truth.texts:
        best = model(input_ids=torch.tensor([text]), use_cache=False).logits.argmax(-1)[0].tolist()
        assert text[-NUM_TOKENS:] == best[-NUM_TOKENS - 1 : -1]


@pytest.mark.parametrize("num_rows", [1, 3])
def test_rejected_drafts_leave_no_trace(case: tuple[Any, Decoding], num_rows: int) -> None:
    model, truth = case
    assert_same(speculative(model, truth.texts[:num_rows]), truth)


def test_the_comparison_notices_rejected_drafts(case: tuple[Any, Decoding]) -> None:
    model, truth = case
    assert speculative(model, truth.texts[:1], polluted=True).texts[0] != truth.texts[0]


def test_a_prompt_in_pieces_beside_a_decoding_row(case: tuple[Any, Decoding]) -> None:
    """Pieces long and short, one with a wrong draft behind it, each in a pass with a row that drafts."""
    model, truth = case
    text = truth.texts[2]
    found = Decoding(model, [truth.texts[0][:-NUM_TOKENS], []])
    found.step({0: []})
    start = 0
    for size, draft in ((17, []), (3, []), (20, [250, 251]), (1, [252])):
        found.texts[1] = text[: start + size]
        drafted = len(found.texts[0])
        found.step({0: [truth.texts[0][drafted], 253], 1: draft})
        start += size
    assert found.texts[0] == truth.texts[0][: len(found.texts[0])]
    assert found.texts[1] == text[: start + 1]
    whole = Decoding(model, [text[:start]])
    whole.step({0: []})
    assert_same_states(found.cache.recurrent.states_of(1), whole.cache.recurrent.states_of(0))


def test_states_are_counted_owned_and_forgotten() -> None:
    decoding = Decoding(tiny_qwen3_next(), PROMPTS[:2])
    decoding.step({0: [], 1: []})
    states = decoding.cache.recurrent
    held = [state for row in (0, 1) for state in states.states_of(row).values()]
    num_layers, convolution, rule = 3, 96 * 4, 2 * 16 * 16
    assert states.num_bytes == 2 * num_layers * (convolution + rule) * 4
    assert sum(state.untyped_storage().nbytes() for state in held) == states.num_bytes
    states.forget(0)
    assert not states.states_of(0) and states.num_bytes == num_layers * (convolution + rule) * 4


def test_impossible_passes_and_commits_are_refused() -> None:
    decoding = Decoding(tiny_qwen3_next(), [])
    states = decoding.cache.recurrent
    for certain in (0, 4):
        with pytest.raises(ValueError, match="at least the root, at most all"):
            states.begin(["a"], [3], [certain])
    decoding.texts, decoding.lengths = [[]], [0]
    decoding.run([0], [[5, 6, 7, 8]], [2])
    for num_nodes in (0, 1, 5):
        with pytest.raises(ValueError, match="2 to 4 are possible"):
            states.commit(0, num_nodes)
    assert not states.states_of(0)


def test_every_family_of_the_table_is_there() -> None:
    for model_type, family in FAMILIES.items():
        name = model_type.removesuffix("_text")
        module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
        for attribute in (family.layer, *family.rules):
            assert hasattr(module, attribute), f"{model_type}: {attribute}"


def test_models_that_cannot_be_rewound_are_refused_with_the_reason() -> None:
    assert recurrent_kind(tiny_llama()) is None
    with pytest.raises(UnsupportedModel, match="has no recurrent layer"):
        RecurrentStates(tiny_llama())
    for model_type, reason in {**REFUSALS, "new_hybrid": "have not been tried"}.items():
        config = SimpleNamespace(model_type=model_type, layer_types=["linear_attention", "full_attention"])
        config.get_text_config = lambda config=config: config
        with pytest.raises(UnsupportedModel, match=reason):
            recurrent_kind(SimpleNamespace(config=config))
