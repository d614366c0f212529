"""ParallelDrafter against training's states of the same text: a stale entry would cost acceptance silently."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding import heads_drafter
from foretell.decoding.drafter import NO_CACHE
from foretell.decoding.engine import Engine
from foretell.decoding.parallel_drafter import ParallelDrafter
from foretell.decoding.sequence import Sequence as Row
from foretell.decoding.shape import Shape
from foretell.models.decoder import States
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from tests.decoding.pooled import pools_of, row_of
from tests.decoding.test_cache import put_right
from tests.fixtures import FAMILIES, random_heads, tiny_llama

KINDS: dict[str, dict[str, Any]] = {
    "layer": {"kind": "parallel"},
    "layer below": {"kind": "parallel", "hidden_source": "below", "own_output": True},
    "linear": {"kind": "parallel", "block": "linear", "hidden_source": "pre"},
    "medusa": {"kind": "medusa", "num_res_blocks": 2},
}
generator = torch.Generator().manual_seed(3)
PROMPTS = [torch.randint(0, 256, (n,), generator=generator).tolist() for n in (1, 2, 3, 4, 19, 7)]


class CheckedDrafter(ParallelDrafter):
    """Compares the logits of every draft with training's on the same committed text.

    The drafted tokens are replaced by the true continuation where ``is_right`` says so, which sets what is accepted.
    """

    texts: dict[tuple[int, ...], list[int]]
    num_compared: int

    def _choose(self, logits_FV: torch.Tensor, growers: list[Any]) -> None:
        sizes = [len(grower.frontier) for grower in growers]
        super()._choose(logits_FV, growers)
        heads = self.heads
        for grower, own_FV in zip(growers, logits_FV.split(sizes), strict=True):
            row, depth, tokens = grower.row, grower.depth, grower.row.tokens_from(0)
            ids = torch.tensor([tokens[:-1]])  # the newest token is not in the trunk yet
            doc_ids = torch.zeros_like(ids)
            states = heads.training_states(heads.trunk.text_states(ids, doc_ids), heads.trunk.embed(ids), doc_ids)
            expected_V = heads.project(states[depth - 1][0, -1], depth)
            where = f"depth {depth} after {len(tokens)} tokens"
            torch.testing.assert_close(
                own_FV, expected_V.expand_as(own_FV), rtol=1e-4, atol=1e-4, msg=lambda m, where=where: f"{where}: {m}"
            )
            type(self).num_compared += 1
            text = self.texts[tuple(row.prompt_token_ids)]
            index = len(row.token_ids) + depth - 1
            if index < len(text) and (index * index + index // 3) % 5 not in (0, 3):
                put_right(grower.draft, text[len(row.token_ids) : index + 1])


class FickleDrafter(CheckedDrafter):
    """Asks for another depth every time, also for none."""

    def depth_for(self, row: Row) -> int:
        return min(super().depth_for(row), (len(row) * 7 + len(row.prompt_token_ids)) % 4)


def check_drafts(
    monkeypatch: pytest.MonkeyPatch,
    heads: Any,
    prompts: list[list[int]],
    max_batch: int,
    num_tokens: int,
    drafter: type[CheckedDrafter] = CheckedDrafter,
    num_nodes: int = 0,
) -> list[Any]:
    model = MTPModel(heads.trunk, heads)
    each = [SamplingParams(max_tokens=num_tokens - i, ignore_eos=True) for i in range(len(prompts))]
    plain = Engine(model, len(prompts)).generate(prompts, each)
    monkeypatch.setattr(CheckedDrafter, "texts", {tuple(c.prompt_token_ids): c.token_ids for c in plain}, raising=False)
    monkeypatch.setattr(drafter, "num_compared", 0, raising=False)
    monkeypatch.setattr(heads_drafter, "ParallelDrafter", drafter)
    done = Engine(model, max_batch).generate(prompts, each, depth=3, num_nodes=num_nodes)
    assert [c.token_ids for c in done] == [c.token_ids for c in plain]
    num_levels = sum(sum(c.stats.drafted_per_position) for c in done)
    assert drafter.num_compared >= num_levels > 3 * len(prompts)
    if not num_nodes:  # a tree may lose its last level again
        assert drafter.num_compared == num_levels == sum(c.stats.num_draft_tokens for c in done)
    assert 0 < sum(c.stats.num_accepted_tokens for c in done) < sum(c.stats.num_draft_tokens for c in done)
    return done


@pytest.mark.parametrize("max_batch", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_drafts_are_those_of_training(monkeypatch: pytest.MonkeyPatch, kind: str, max_batch: int) -> None:
    """After every mix of accepted and rejected tokens, rows that join and leave included."""
    heads = random_heads(Trunk(tiny_llama()), **KINDS[kind])
    check_drafts(monkeypatch, heads, PROMPTS, max_batch, num_tokens=24)


@pytest.mark.parametrize("max_batch", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_trees_are_made_of_the_logits_of_training(monkeypatch: pytest.MonkeyPatch, kind: str, max_batch: int) -> None:
    heads = random_heads(Trunk(tiny_llama()), **KINDS[kind])
    check_drafts(monkeypatch, heads, PROMPTS[2:5], max_batch, num_tokens=24, num_nodes=8)


@pytest.mark.parametrize("kind", ["layer below", "linear", "medusa"])
def test_drafts_of_packed_heads(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    heads = random_heads(Trunk(tiny_llama()), **KINDS[kind], draft_ids=range(0, 256, 2))
    MTPModel(heads.trunk, heads).pack()
    check_drafts(monkeypatch, heads, PROMPTS[:3], max_batch=2, num_tokens=24)


@pytest.mark.parametrize("family", ["mistral", "gemma2", "glm4_moe", "deepseek_v3"])
def test_drafts_of_other_families(monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    """40 tokens and more: past the sliding window."""
    heads = random_heads(Trunk(FAMILIES[family]()), **KINDS["layer below"])
    check_drafts(monkeypatch, heads, [PROMPTS[4], PROMPTS[1]], max_batch=2, num_tokens=24)
    check_drafts(monkeypatch, heads, [PROMPTS[4] * 5, PROMPTS[5] * 7], max_batch=2, num_tokens=8)


@pytest.mark.parametrize("kind", ["layer", "medusa"])
def test_a_depth_that_changes_from_step_to_step(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Modules that were not asked for a while read all that they missed."""
    heads = random_heads(Trunk(tiny_llama()), **KINDS[kind])
    done = check_drafts(monkeypatch, heads, PROMPTS, max_batch=3, num_tokens=30, drafter=FickleDrafter)
    drafted = [sum(c.stats.drafted_per_position[k] for c in done) for k in range(3)]
    assert drafted[0] > drafted[1] > drafted[2] > 0


@pytest.mark.parametrize("kind", ["layer", "medusa"])
@torch.inference_mode()
def test_rows_of_different_depth_in_one_batch(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Depth 0 to 3 side by side; states wait no longer than the row's own modules need them."""
    trunk = Trunk(tiny_llama())
    heads = random_heads(trunk, **KINDS[kind])
    prompts = [PROMPTS[n] for n in (4, 5, 3, 2)]
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    plain = Engine(MTPModel(trunk), 4).generate(prompts, params)
    monkeypatch.setattr(CheckedDrafter, "texts", {tuple(c.prompt_token_ids): c.token_ids for c in plain}, raising=False)
    monkeypatch.setattr(CheckedDrafter, "num_compared", 0, raising=False)
    monkeypatch.setattr(heads_drafter, "ParallelDrafter", CheckedDrafter)
    engine = Engine(MTPModel(trunk, heads), 4)
    rows = [engine._sequences(prompt, params, depth, 0, "")[0] for depth, prompt in enumerate(prompts)]
    for row in rows:
        engine._core.add(row)
    while not engine._core.is_idle:
        engine._core.advance()
        for row, known in engine._core.step.drafter._rows.items():  # type: ignore[union-attr]
            assert known.queue is None or len(known.queue.states_ND) <= max(len(row.prompt_token_ids), 8)
    assert [row.token_ids for row in rows] == [text.token_ids for text in plain]
    assert [len(row.stats.drafted_per_position) for row in rows] == [0, 1, 2, 3]
    assert CheckedDrafter.num_compared == sum(row.stats.num_draft_tokens for row in rows)


@pytest.mark.parametrize("kind", ["layer", "medusa"])
def test_drafts_up_to_the_end_of_the_heads_window(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The last draft is made from the state at index 23, the window's last; then decoding goes on plainly."""
    heads = random_heads(Trunk(tiny_llama(max_position_embeddings=60)), max_positions=24, **KINDS[kind])
    lengths: list[int] = []
    choose = CheckedDrafter._choose

    def recorded(self: Any, logits_FV: torch.Tensor, growers: list[Any]) -> None:
        lengths.extend(len(grower.row) for grower in growers)
        choose(self, logits_FV, growers)

    with mock.patch.object(CheckedDrafter, "_choose", recorded):
        done = check_drafts(monkeypatch, heads, [PROMPTS[4], PROMPTS[1]], max_batch=2, num_tokens=39)
    assert 23 <= max(lengths) <= 25
    assert [len(c.token_ids) for c in done] == [39, 38]


def test_modules_without_attention_keep_nothing() -> None:
    """No key is stored, and of all the states of a long prompt only the newest waits."""
    trunk = Trunk(tiny_llama())
    for kind, keeps in (("layer", True), ("linear", False), ("medusa", False)):
        heads = random_heads(trunk, **KINDS[kind])
        pools = pools_of()
        drafter = ParallelDrafter(heads, pools, 512)
        row = row_of(PROMPTS[4], pools, depth=2)
        drafter.admit(row)
        drafter.observe(row, 0, States(torch.randn(18, 64), torch.randn(18, 64)))
        queue = drafter._rows[row].queue
        assert queue is not None and len(queue.states_ND) == (18 if keeps else 1)
        with torch.no_grad():
            drafter.draft([row], [Shape.chain(2)])
        assert [cache.num_bytes > 0 for cache in drafter.caches] == [keeps, keeps, False]
        assert len(queue.states_ND) == (0 if keeps else 1)  # nor for the third module, which this row never asks
        assert drafter.num_final(row) == (0 if keeps else NO_CACHE)
