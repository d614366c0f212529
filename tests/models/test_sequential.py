from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from foretell.config import HeadsConfig
from foretell.errors import CheckpointError
from foretell.models.decoder import in_window
from foretell.models.packed import pack_linears
from foretell.models.sequential import SequentialHeads
from foretell.models.trunk import Trunk
from tests.fixtures import (
    EOS,
    FAMILIES,
    dist_heads,
    dist_trunk,
    encode,
    random_heads,
    script_trunk,
    scripted_heads,
    tiny_llama,
    tiny_mistral,
)

Build = Callable[..., Any]
NUM_DEPTHS = 3
MODES = {
    "unrolled": {"unrolled": True, "num_depths": NUM_DEPTHS},
    "distinct": {"unrolled": False, "num_modules": NUM_DEPTHS, "num_depths": NUM_DEPTHS},
}


@pytest.fixture(params=sorted(FAMILIES))
def build(request: pytest.FixtureRequest) -> Build:
    return FAMILIES[request.param]


@pytest.fixture(params=sorted(MODES))
def mode(request: pytest.FixtureRequest) -> dict[str, Any]:
    return MODES[request.param]


def token_ids(num_tokens: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(0, EOS, (1, num_tokens), generator=torch.Generator().manual_seed(seed))


def training_states(
    heads: SequentialHeads, ids: torch.Tensor, doc_ids: torch.Tensor | None = None
) -> list[torch.Tensor]:
    doc_ids = torch.zeros_like(ids) if doc_ids is None else doc_ids
    return heads.training_states(heads.trunk.text_states(ids, doc_ids), heads.trunk.embed(ids), doc_ids)


def summed_loss(heads: SequentialHeads, ids: torch.Tensor, doc_ids: torch.Tensor) -> torch.Tensor:
    """Every depth's loss over the targets that lie in the position's own document, by plain indexing."""
    total = torch.zeros(())
    for depth, states in enumerate(training_states(heads, ids, doc_ids), start=1):
        for i in range(ids.shape[1] - depth - 1):
            if doc_ids[0, i] == doc_ids[0, i + depth + 1]:
                total = total + F.cross_entropy(heads.project(states[0, i], depth), ids[0, i + depth + 1])
    return total


def test_packed_documents_give_the_loss_and_gradients_of_separate_ones(build: Build, mode: dict[str, Any]) -> None:
    """Trunk included, over more tokens than the sliding window."""
    trunk = Trunk(build())
    heads = random_heads(trunk, **mode).requires_grad_(True)
    first, second = token_ids(21), token_ids(9, seed=2)
    parameters = [*trunk.parameters(), *heads.parameters()]

    def run(*rows: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        loss = sum((summed_loss(heads, ids, doc_ids) for ids, doc_ids in rows), torch.zeros(()))
        grads = torch.autograd.grad(loss, parameters, allow_unused=True)
        return loss.detach(), [torch.zeros(()) if grad is None else grad for grad in grads]

    packed = torch.cat([first, second], dim=1), torch.tensor([[0] * 21 + [1] * 9])
    loss, grads = run(packed)
    expected_loss, expected_grads = run(*((ids, torch.zeros_like(ids)) for ids in (first, second)))
    torch.testing.assert_close(loss, expected_loss, rtol=1e-5, atol=0)
    for grad, expected in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(grad, expected, rtol=1e-4, atol=1e-4)
    assert sum(grad.abs().sum() > 0 for grad in grads) > len(grads) * 0.8


class _ListCache:
    """The least a cache can be: a list of entries that ``cut`` shortens."""

    def __init__(self) -> None:
        self.keys = self.values = torch.empty(0)

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys = torch.cat([self.keys, keys], dim=2) if len(self.keys) else keys
        self.values = torch.cat([self.values, values], dim=2) if len(self.values) else values
        return self.keys, self.values

    def cut(self, length: int) -> None:
        self.keys, self.values = self.keys[:, :, :length], self.values[:, :, :length]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.keys.shape[2] if len(self.keys) else 0


@torch.no_grad()
def stepped_states(heads: SequentialHeads, ids: torch.Tensor) -> list[list[torch.Tensor]]:
    """[depth - 1][i]: state of depth k at index i, one token at a time against a cache, as decoding makes it.

    Unrolled, a chain is written behind depth 1's true entries and cut off before the next index.
    """
    trunk, config = heads.trunk, heads.config
    trunk_states = heads.trunk_side(trunk.text_states(ids, torch.zeros_like(ids)))
    embeddings = trunk.embed(ids)
    caches = [_ListCache() for _ in range(config.num_modules)]
    found: list[list[torch.Tensor]] = [[] for _ in range(config.num_depths)]
    for i in range(ids.shape[1] - config.num_depths):
        state = trunk_states[:, i : i + 1]
        for depth in range(1, config.num_depths + 1):
            position = i + depth - 1 if config.unrolled else i
            cache = caches[0 if config.unrolled else depth - 1]
            keys = torch.arange(position + 1).unsqueeze(0)
            positions = torch.tensor([[position]])
            seen = torch.ones(1, 1, position + 1, dtype=torch.bool)
            masks = {kind: in_window(seen, positions, keys, heads.layer_window) for kind in heads.layer_kinds}
            masks |= {"full_attention": seen}
            states = heads.step(depth, state, embeddings[:, i + depth : i + depth + 1], positions, masks, cache)
            found[depth - 1].append(states.post_BTD[:, 0])
            state = heads.feedback(states)
        if config.unrolled:
            caches[0].cut(i + 1)
    return found


@pytest.mark.parametrize("conventions", [{}, {"hidden_source": "pre", "concat": "hidden_first", "feedback": "raw"}])
def test_training_states_are_those_of_decoding(build: Build, mode: dict[str, Any], conventions: dict[str, str]) -> None:
    """Otherwise depth 2 is trained for inputs it never gets. 24 tokens: more than the sliding window."""
    heads = random_heads(Trunk(build()), **mode, **conventions)
    ids = token_ids(24)
    with torch.no_grad():
        trained = training_states(heads, ids)
    for depth, stepped in enumerate(stepped_states(heads, ids), start=1):
        expected = torch.stack(stepped, dim=1)
        torch.testing.assert_close(trained[depth - 1][:, : expected.shape[1]], expected, rtol=1e-4, atol=2e-5)


def test_conventions_change_the_result() -> None:
    trunk = Trunk(tiny_llama())
    ids = token_ids(12)
    reference = training_states(random_heads(trunk), ids)[-1]
    for setting in ({"hidden_source": "pre"}, {"concat": "hidden_first"}, {"feedback": "raw"}):
        assert not torch.allclose(training_states(random_heads(trunk, **setting), ids)[-1], reference, atol=1e-3)


def test_heads_own_their_tensors_and_borrow_the_trunk(build: Build, mode: dict[str, Any]) -> None:
    trunk = Trunk(build())
    heads = SequentialHeads(trunk, HeadsConfig(**mode))
    storages = {parameter.untyped_storage().data_ptr() for parameter in trunk.parameters()}
    assert all(parameter.untyped_storage().data_ptr() not in storages for parameter in heads.parameters())
    assert all(parameter.requires_grad for parameter in heads.parameters())
    before = {name: tensor.clone() for name, tensor in trunk.state_dict().items()}
    heads.requires_grad_(True)
    training_states(heads, token_ids(8))[-1].sum().backward()
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(before[name], tensor) for name, tensor in trunk.state_dict().items())


def test_fresh_heads_start_from_the_trunks_state() -> None:
    """eh_proj near [small; identity]: the block's input is close to the normed trunk state."""
    heads = SequentialHeads(Trunk(tiny_llama()), HeadsConfig())
    module = heads.module_at(1)
    states, embeddings = torch.randn(2, 1, 5, 64).unbind(0)
    fused = module.eh_proj(torch.cat([module.enorm(embeddings), module.hnorm(states)], dim=-1))
    normed = F.rms_norm(states, (64,))
    assert F.cosine_similarity(fused, normed, dim=-1).min() > 0.95


def test_the_block_comes_from_the_last_full_attention_layer() -> None:
    trunk = Trunk(FAMILIES["gemma2"](num_hidden_layers=3))  # sliding, full, sliding
    heads = SequentialHeads(trunk, HeadsConfig())
    expected = trunk.decoder.layers[1].mlp.up_proj.weight
    assert torch.equal(heads.module_at(1).layer.mlp.up_proj.weight, expected)


def test_heads_built_on_a_packed_trunk_run_their_own_weights() -> None:
    plain, packed = Trunk(tiny_llama()), Trunk(tiny_llama())
    pack_linears(packed)
    ids = token_ids(10)
    with torch.no_grad():
        expected = training_states(random_heads(plain), ids)[-1]
        torch.testing.assert_close(training_states(random_heads(packed), ids)[-1], expected, rtol=1e-4, atol=1e-4)


def test_a_sliding_window_reaches_the_heads() -> None:
    """A token further back than the window changes nothing in a one-layer trunk's head."""
    heads = random_heads(Trunk(tiny_mistral(num_hidden_layers=1, sliding_window=4)))
    ids = token_ids(24)
    changed = ids.clone()
    changed[0, 0] = (ids[0, 0] + 1) % EOS
    with torch.no_grad():
        first, second = training_states(heads, ids)[-1], training_states(heads, changed)[-1]
    assert not torch.equal(first[:, 1], second[:, 1])
    assert torch.equal(first[:, 12:], second[:, 12:])


@pytest.mark.parametrize("concat", ["embedding_first", "hidden_first"])
def test_scripted_heads_are_right_wrong_and_mixed(mode: dict[str, Any], concat: str) -> None:
    """Cases.md, fixtures: 7 of 7 right, 0 of 7, and wrong exactly after the tokens in the set."""
    chain = encode(">hi😀!<eos>")
    trunk = script_trunk(">hi😀!<eos>")
    for kind in ("perfect", "wrong", "mixed"):
        heads = scripted_heads(trunk, kind, wrong_after=[chain[2], chain[6]], concat=concat, **mode)
        with torch.no_grad():
            states = training_states(heads, torch.tensor([chain]))
        for depth in range(1, NUM_DEPTHS + 1):
            for i in range(len(chain) - depth - 1):
                guess, last_read = int(heads.project(states[depth - 1][0, i], depth).argmax()), chain[i + depth]
                right = kind == "perfect" or (kind == "mixed" and last_read not in (chain[2], chain[6]))
                assert (guess == chain[i + depth + 1]) == right


def test_dist_heads_have_their_own_law() -> None:
    trunk = dist_trunk({10: 0.5, 11: 0.3, 12: 0.15, 13: 0.05})
    heads = dist_heads(trunk, {10: 0.4, 11: 0.1, 12: 0.3, 13: 0.2})
    ids = torch.tensor([[10, 12, 11, 13, 10]])
    with torch.no_grad():
        trunk_probs = trunk.project(trunk.text_states(ids, torch.zeros_like(ids)).post_BTD).softmax(-1)[0, :, 10:14]
        head_probs = heads.project(training_states(heads, ids)[0], 1).softmax(-1)[0, :4, 10:14]
    torch.testing.assert_close(trunk_probs, torch.tensor([[0.5, 0.3, 0.15, 0.05]] * 5), rtol=0, atol=1e-4)
    torch.testing.assert_close(head_probs, torch.tensor([[0.4, 0.1, 0.3, 0.2]] * 4), rtol=0, atol=1e-4)


def test_a_reduced_draft_vocabulary_cuts_the_logits() -> None:
    trunk = Trunk(tiny_llama())
    draft_ids = [3, 7, 100, 256]
    full, reduced = random_heads(trunk), random_heads(trunk, draft_ids=draft_ids)
    states = torch.randn(2, 64)
    torch.testing.assert_close(reduced.project(states, 1), full.project(states, 1)[:, draft_ids])
    assert reduced.to_token_ids(torch.tensor([0, 3])).tolist() == [3, 256]
    assert reduced.to_draft_ids(torch.tensor([3, 4, 256, -100])).tolist() == [0, -100, 3, -100]


@pytest.mark.parametrize(
    "wrong",
    [
        {"concat": "both"},
        {"num_modules": -1},
        {"num_depths": 0},
        {"num_modules": 2, "unrolled": True},
        {"num_modules": 2, "unrolled": False, "num_depths": 3},
    ],
)
def test_impossible_conventions_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="heads: "):
        HeadsConfig(**wrong)


def test_norms_of_the_heads_do_not_hold_a_copy_of_the_trunk() -> None:
    trunk = Trunk(tiny_llama())
    heads = SequentialHeads(trunk, HeadsConfig(num_modules=2, num_depths=2, unrolled=False))
    for module in heads.modules_by_depth:
        assert not module.enorm._forward_pre_hooks
        assert not module.hnorm._forward_pre_hooks
        assert len(module.norm._forward_pre_hooks) == 1  # its own runner's
        hook = next(iter(module.norm._forward_pre_hooks.values()))
        assert hook.__self__.decoder is not trunk.decoder
        assert len(hook.__self__.decoder.layers) == 1
