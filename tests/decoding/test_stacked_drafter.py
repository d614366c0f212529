"""StackedDrafter: who drafts which row, and that nobody falls behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding import drafter_config, heads_drafter
from foretell.decoding.drafter import NO_CACHE
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.decoding.sequence import Sequence as Row
from foretell.decoding.shape import Shape
from foretell.decoding.stacked_drafter import StackedDrafter
from foretell.models.decoder import States
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import Draft
from tests.decoding import test_cache, test_model_drafter, test_parallel_drafter
from tests.fixtures import random_heads, script_trunk, scripted_heads, tiny_llama

generator = torch.Generator().manual_seed(5)
PROMPTS = [torch.randint(0, 256, (n,), generator=generator).tolist() for n in (4, 9, 1, 13)]


class FakeDrafter:
    """Guesses ``token_id`` for rows whose prompt is in ``starts``, as deep as ``limit``."""

    num_bytes = 7

    def __init__(self, token_id: int, starts: set[int], limit: int = 9, num_final: int = 0) -> None:
        self.token_id, self.starts, self.limit, self.final = token_id, starts, limit, num_final
        self.calls: list[Any] = []

    def admit(self, row: Row) -> None:
        self.calls.append(("admit", row))

    def forget(self, row: Row) -> None:
        self.calls.append(("forget", row))

    def observe(self, row: Row, index: int, states: States) -> None:
        self.calls.append(("observe", row, index))

    def depth_for(self, row: Row) -> int:
        assert isinstance(row.depth, int)
        return min(row.depth, self.limit)

    def num_final(self, row: Row) -> int:
        return self.final

    def draft(self, rows: list[Row], shapes: list[Shape]) -> list[Draft]:
        self.calls.append(("draft", [row.prompt_token_ids[0] for row in rows], shapes))
        return [
            Draft.chain([self.token_id] * shape.depth if row.prompt_token_ids[0] in self.starts else [])
            for row, shape in zip(rows, shapes, strict=True)
        ]


def rows_of(*depths: int) -> list[Row]:
    """Row i's prompt is token i."""
    return [Row([i], SamplingParams(), depth, 512, frozenset(), None, 260) for i, depth in enumerate(depths)]


def chains(*depths: int) -> list[Shape]:
    return [Shape.chain(depth) for depth in depths]


def test_the_first_that_has_something_to_say_drafts() -> None:
    first, second, third = FakeDrafter(1, {0, 4}, limit=2), FakeDrafter(2, {0, 1, 2, 3}), FakeDrafter(3, {3})
    stack = StackedDrafter([first, second, third])
    rows = rows_of(3, 3, 1, 0, 5, 4)
    depths = [stack.depth_for(row) for row in rows]
    assert depths == [3, 3, 1, 0, 5, 4]
    drafts = stack.draft(rows, chains(*depths))
    assert [draft.token_ids for draft in drafts] == [[1, 1], [2, 2, 2], [2], [], [1, 1], []]
    assert first.calls == [("draft", [0, 1, 2, 4, 5], chains(2, 2, 1, 2, 2))]
    assert second.calls == [("draft", [1, 2, 5], chains(3, 1, 4))]
    assert third.calls == [("draft", [5], chains(4))]
    assert stack.num_bytes == 21


def test_a_tree_is_asked_for_as_deep_as_each_one_goes() -> None:
    first, second = FakeDrafter(1, set(), limit=2), FakeDrafter(2, {0})
    StackedDrafter([first, second]).draft(rows_of(3), [Shape(3, 8)])
    assert (first.calls, second.calls) == ([("draft", [0], [Shape(2, 8)])], [("draft", [0], [Shape(3, 8)])])


def test_all_hear_of_everything() -> None:
    drafters = [FakeDrafter(1, {0}, num_final=NO_CACHE), FakeDrafter(2, {0}, num_final=4)]
    stack = StackedDrafter(drafters)
    [row] = rows_of(2)
    stack.admit(row)
    stack.observe(row, 4, States(torch.zeros(1, 2), torch.zeros(1, 2)))
    assert stack.num_final(row) == 4  # what all of them have
    stack.draft([row], chains(0))  # nobody is asked for nothing
    stack.forget(row)
    assert [drafter.calls for drafter in drafters] == [[("admit", row), ("observe", row, 4), ("forget", row)]] * 2


def test_look_up_first_and_heads_else() -> None:
    """abcd twice: heads (never right) draft the first time round, look-up (always right) from then on."""
    trunk = script_trunk("abcda")
    model = MTPModel(trunk, scripted_heads(trunk, "wrong", unrolled=False, num_modules=2, num_depths=2))
    [done] = Engine(model, drafter="ngram+heads").generate(["a"], SamplingParams(max_tokens=24), depth=4)
    assert done.text == "bcda" * 6
    # b comes from the prompt, then c, d, a, b from rounds of heads; now "ab" is known, and a round brings five tokens.
    assert done.num_rounds == 5 + 4
    assert done.stats.drafted_per_position == [8, 8, 4, 3]  # four rounds of heads, two deep, and four of look-up
    assert done.stats.accepted_per_position == [4, 4, 4, 3]


SECONDS: dict[str, Any] = {
    "unrolled": {"unrolled": True, "num_depths": 3},
    "distinct": {"unrolled": False, "num_modules": 3, "num_depths": 3},
    "layer": {"kind": "parallel"},
    "medusa": {"kind": "medusa"},
    "model": None,
}


@pytest.mark.parametrize("max_batch", [1, 3])
@pytest.mark.parametrize("second", SECONDS)
def test_the_second_drafts_as_if_it_were_alone(monkeypatch: pytest.MonkeyPatch, second: str, max_batch: int) -> None:
    """After look-up has drafted for a while, its logits are those that a plain pass, or training, gives."""
    trunk = Trunk(tiny_llama())
    prompts = [prompt + prompt[:3] for prompt in PROMPTS]  # look-up has something to say from the start
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    plain = Engine(MTPModel(trunk), 4).generate(prompts, params)
    texts = {tuple(c.prompt_token_ids): c.token_ids for c in plain}
    model, config = MTPModel(trunk), DrafterConfig("ngram+heads")
    if second == "model":
        checked: Any = test_model_drafter.CheckedDrafter
        config = DrafterConfig("ngram+model", MTPModel(test_model_drafter.small()))
        monkeypatch.setattr(checked, "num_read", [], raising=False)
    else:
        model = MTPModel(trunk, random_heads(trunk, **SECONDS[second]))
        checked = (test_cache if model.heads.reads_tokens else test_parallel_drafter).CheckedDrafter
    monkeypatch.setattr(checked, "texts", texts, raising=False)
    monkeypatch.setattr(checked, "num_compared", 0, raising=False)
    made_in = drafter_config if second == "model" else heads_drafter
    monkeypatch.setattr(made_in, checked.__mro__[1].__name__, checked)
    by_look_up: list[int] = []
    draft = drafter_config.NgramDrafter.draft

    def right_at_times(self: Any, rows: list[Row], shapes: list[Shape]) -> list[Draft]:
        drafts = draft(self, rows, shapes)
        for b, (row, shape) in enumerate(zip(rows, shapes, strict=True)):
            done = len(row.token_ids)
            if done % 3 == 0 or 12 <= done < 20:  # alone for long enough that the others must catch up
                drafts[b] = Draft.chain(texts[tuple(row.prompt_token_ids)][done : done + shape.depth])
            elif done % 2:
                drafts[b] = Draft()
            by_look_up.append(len(drafts[b]))
        return drafts

    monkeypatch.setattr(drafter_config.NgramDrafter, "draft", right_at_times)
    done = Engine(model, max_batch, config).generate(prompts, params, depth=3)
    assert [c.token_ids for c in done] == [c.token_ids for c in plain]
    assert checked.num_compared > 8 and sum(by_look_up) > 20
