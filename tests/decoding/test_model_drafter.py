"""ModelDrafter against plain passes over the same text: a stale entry would cost acceptance silently."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding import drafter_config
from foretell.decoding.blocks import BLOCK_SIZE
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.decoding.model_drafter import ModelDrafter
from foretell.decoding.sequence import Sequence as Row
from foretell.decoding.shape import Shape
from foretell.errors import UsageError
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Draft
from tests.fixtures import FAMILIES, byte_tokenizer, random_heads, script_trunk, tiny_llama

generator = torch.Generator().manual_seed(3)
PROMPTS = [torch.randint(0, 256, (n,), generator=generator).tolist() for n in (1, 2, 3, 4, 19, 7)]


def small(**config: Any) -> Trunk:
    """One layer instead of two."""
    return Trunk(tiny_llama(num_hidden_layers=1, **config))


class CheckedDrafter(ModelDrafter):
    """Compares the logits of every drafted token with a plain pass over the text before it.

    The drafted tokens are replaced by the true continuation where ``is_right`` says so, which sets what is accepted.
    """

    texts: dict[tuple[int, ...], list[int]]
    num_compared: int
    num_read: list[int]

    def _choose(self, logits_FV: torch.Tensor, growers: list[Any]) -> None:
        super()._choose(logits_FV, growers)
        for grower, logits_V in zip(growers, logits_FV, strict=True):
            row, draft = grower.row, grower.draft
            ids = torch.tensor([row.tokens_from(0) + draft.token_ids[:-1]])
            expected_V = self.trunk.project(self.trunk.text_states(ids, torch.zeros_like(ids)).post_BTD[0, -1])
            where = f"token {len(draft.token_ids)} after {len(row)} tokens"
            torch.testing.assert_close(
                logits_V, expected_V, rtol=1e-4, atol=1e-4, msg=lambda m, where=where: f"{where}: {m}"
            )
            type(self).num_compared += 1
            text = self.texts[tuple(row.prompt_token_ids)]
            index = len(row.token_ids) + len(draft.token_ids) - 1
            if index < len(text) and (index * index + index // 3) % 5 not in (0, 3):
                draft.token_ids[-1] = text[index]

    def draft(self, rows: list[Row], shapes: list[Shape]) -> list[Draft]:
        for row, shape in zip(rows, shapes, strict=True):
            if shape.depth and (length := self.num_final(row)):
                type(self).num_read.append(len(row) - length)
        return super().draft(rows, shapes)


class FickleDrafter(CheckedDrafter):
    """Asks for another depth every time, also for none."""

    def depth_for(self, row: Row) -> int:
        return min(super().depth_for(row), (len(row) * 7 + len(row.prompt_token_ids)) % 4)


def watch(monkeypatch: pytest.MonkeyPatch, plain: list[Any], drafter: type[CheckedDrafter] = CheckedDrafter) -> None:
    monkeypatch.setattr(CheckedDrafter, "texts", {tuple(c.prompt_token_ids): c.token_ids for c in plain}, raising=False)
    monkeypatch.setattr(drafter, "num_compared", 0, raising=False)
    monkeypatch.setattr(drafter, "num_read", [], raising=False)
    monkeypatch.setattr(drafter_config, "ModelDrafter", drafter)


def check_drafts(
    monkeypatch: pytest.MonkeyPatch,
    trunk: Trunk,
    draft: Trunk,
    prompts: list[list[int]],
    max_batch: int,
    num_tokens: int,
    drafter: type[CheckedDrafter] = CheckedDrafter,
) -> list[Any]:
    each = [SamplingParams(max_tokens=num_tokens - i, ignore_eos=True) for i in range(len(prompts))]
    plain = Engine(MTPModel(trunk), len(prompts)).generate(prompts, each)
    watch(monkeypatch, plain, drafter)
    engine = Engine(MTPModel(trunk), max_batch, DrafterConfig("model", MTPModel(draft)))
    done = engine.generate(prompts, each, depth=3)
    assert [c.token_ids for c in done] == [c.token_ids for c in plain]
    assert drafter.num_compared == sum(c.stats.num_draft_tokens for c in done) > 3 * len(prompts)
    assert 0 < sum(c.stats.num_accepted_tokens for c in done) < sum(c.stats.num_draft_tokens for c in done)
    return done


@pytest.mark.parametrize("max_batch", [1, 4])
def test_drafts_are_those_of_a_plain_pass(monkeypatch: pytest.MonkeyPatch, max_batch: int) -> None:
    """After every mix of accepted and rejected tokens, rows that join and leave included."""
    trunk, draft = Trunk(tiny_llama()), Trunk(FAMILIES["qwen3"](num_hidden_layers=1))
    check_drafts(monkeypatch, trunk, draft, PROMPTS, max_batch, num_tokens=24)
    # Entries of accepted guesses are kept: a draft begins with the root, and the last guess where all were accepted.
    assert set(CheckedDrafter.num_read) == {1, 2}


@pytest.mark.parametrize("family", ["mistral", "gemma2", "deepseek_v3"])
def test_draft_models_of_other_families(monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    """40 tokens and more: past the sliding window."""
    draft = Trunk(FAMILIES[family]())
    check_drafts(monkeypatch, Trunk(tiny_llama()), draft, [PROMPTS[4], PROMPTS[1]], max_batch=2, num_tokens=24)


def test_a_depth_that_changes_from_step_to_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that was not asked for a while reads all that it missed."""
    trunk = Trunk(tiny_llama())
    done = check_drafts(monkeypatch, trunk, small(), PROMPTS, 3, num_tokens=30, drafter=FickleDrafter)
    drafted = [sum(c.stats.drafted_per_position[k] for c in done) for k in range(3)]
    assert drafted[0] > drafted[1] > drafted[2] > 0


def test_rows_of_different_depth_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    trunk = Trunk(tiny_llama())
    prompts = [PROMPTS[n] for n in (4, 5, 3, 2)]
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    plain = Engine(MTPModel(trunk), 4).generate(prompts, params)
    watch(monkeypatch, plain)
    engine = Engine(MTPModel(trunk), 4, DrafterConfig("model", MTPModel(small())))
    done = engine.generate(prompts, params, depth=[0, 1, 2, 3])
    assert [c.token_ids for c in done] == [text.token_ids for text in plain]
    assert [len(c.stats.drafted_per_position) for c in done] == [0, 1, 2, 3]
    assert CheckedDrafter.num_compared == sum(c.stats.num_draft_tokens for c in done)


def test_drafts_end_with_the_draft_models_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last guess is made from the token at index 23, the window's last; then decoding goes on plainly."""
    draft = small(max_position_embeddings=24)
    longest: list[int] = []
    choose = CheckedDrafter._choose

    def recorded(self: Any, logits_FV: torch.Tensor, growers: list[Any]) -> None:
        longest.extend(len(grower.row) + len(grower.draft) for grower in growers)
        choose(self, logits_FV, growers)

    monkeypatch.setattr(CheckedDrafter, "_choose", recorded)
    trunk = Trunk(tiny_llama(max_position_embeddings=60))
    done = check_drafts(monkeypatch, trunk, draft, [PROMPTS[4], PROMPTS[1]], max_batch=2, num_tokens=39)
    assert max(longest) == 24
    assert [len(c.token_ids) for c in done] == [39, 38]


def test_a_trunk_that_drafts_for_itself_is_always_right() -> None:
    """Greedy and sampled with the row's own settings; the same object serves both, each with its own cache."""
    model = MTPModel(Trunk(tiny_llama()))
    params = [SamplingParams(max_tokens=21, temperature=t, top_k=9, seed=1, ignore_eos=True) for t in (0, 0.8, 1.2)]
    done = Engine(model, 3, DrafterConfig("model", model)).generate(PROMPTS[:3], params, depth=3)
    assert [c.stats.acceptance_rate for c in done] == [1.0] * 3
    assert {c.num_rounds for c in done} == {6}


def test_memory_is_that_of_weights_and_cache() -> None:
    model, draft = MTPModel(script_trunk("abca")), MTPModel(script_trunk("abca"))
    engine = Engine(model, drafter=DrafterConfig("model", draft))
    engine.generate(["a"], SamplingParams(max_tokens=9))
    assert engine.drafter_num_bytes == 0  # nothing was drafted
    weights = sum(t.numel() * 4 for t in (*draft.parameters(), *draft.buffers()))
    for num_tokens, num_blocks in ((9, 1), (40, 3), (9, 3)):  # at its largest
        engine.generate(["a"], SamplingParams(max_tokens=num_tokens), depth=2)
        assert engine.drafter_num_bytes == weights + num_blocks * BLOCK_SIZE * 20 * 2 * 4


def test_another_vocabulary_is_refused() -> None:
    model = MTPModel(Trunk(tiny_llama(), byte_tokenizer(), name="big"))
    other_size = MTPModel(Trunk(tiny_llama(vocab_size=300), name="small"))
    with pytest.raises(UsageError, match=r"draft model small and big have vocabularies of 300 and 260 tokens"):
        Engine(model, drafter=DrafterConfig("model", other_size))
    shifted = byte_tokenizer()
    pieces = shifted.backend_tokenizer.to_str().replace('"a":', '"?":').replace('"b":', '"a":').replace('"?":', '"b":')
    shifted = type(shifted)(tokenizer_object=type(shifted.backend_tokenizer).from_str(pieces), eos_token="<eos>")
    other_ids = MTPModel(Trunk(tiny_llama(), shifted, name="small"))
    with pytest.raises(UsageError, match="draft model small and big give the same text other token ids"):
        Engine(model, drafter=DrafterConfig("ngram+model", other_ids))
    Engine(model, drafter=DrafterConfig("model", MTPModel(Trunk(tiny_llama()))))  # without a tokenizer: the size counts


def test_what_does_not_fit_is_refused() -> None:
    model = MTPModel(Trunk(tiny_llama(), name="tiny"))
    with pytest.raises(UsageError, match="drafter 'beam' is not allowed; give one of heads, ngram, ngram.heads, model"):
        Engine(model, drafter="beam")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="drafter ngram.model needs a draft model, and None is none"):
        Engine(model, drafter="ngram+model")
    with pytest.raises(UsageError, match="drafter ngram uses no draft model"):
        DrafterConfig("ngram", model)
    for kind in ("heads", "ngram+heads"):
        with pytest.raises(UsageError, match="tiny has no heads; give heads .an adapter folder., or another drafter"):
            Engine(model, drafter=kind)  # type: ignore[arg-type]
        Engine(MTPModel(model.trunk, random_heads(model.trunk)), drafter=kind)  # type: ignore[arg-type]
