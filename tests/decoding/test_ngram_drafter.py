"""NgramDrafter against a plain search through the whole text."""

from __future__ import annotations

import random
import time

import pytest
import torch

from foretell.config import SamplingParams
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.decoding.ngram_drafter import NgramDrafter
from foretell.decoding.sequence import Sequence as Row
from foretell.decoding.shape import Shape
from foretell.errors import UsageError
from foretell.models.mtp_model import MTPModel
from tests.fixtures import encode, script_trunk


def searched(text: list[int], depth: int, max_n: int, min_n: int) -> list[int]:
    """The same guess by trying every length and every place, from the longest and the latest."""
    for n in range(max_n, min_n - 1, -1):
        for end in range(len(text) - 1, n - 1, -1):
            if text[end - n : end] == text[len(text) - n :]:
                copied = list(text)
                for i in range(depth):
                    copied.append(copied[end + i])
                return copied[len(text) :]
    return []


def row_of(prompt: list[int], depth: int = 3) -> Row:
    return Row(prompt, SamplingParams(max_tokens=10**6), depth, 10**6, frozenset(), None, vocab_size=1000)


def guess(drafter: NgramDrafter, text: list[int], depth: int = 4) -> list[int]:
    row = row_of(text)
    drafter.admit(row)
    return drafter.draft([row], [Shape.chain(depth)])[0].token_ids


@pytest.mark.parametrize("sizes", [(3, 1), (1, 1), (4, 2)])
def test_guesses_are_those_of_a_plain_search(sizes: tuple[int, int]) -> None:
    """Rows of different length grow by chunks, are skipped, forgotten, and admitted again with all their text."""
    chance = random.Random(0)
    drafter = NgramDrafter(*sizes)
    letters = range(6)
    rows: list[Row] = []
    num_found = num_empty = 0
    for _ in range(600):
        if len(rows) < 4:
            rows.append(row_of(chance.choices(letters, k=chance.randrange(1, 30))))
            drafter.admit(rows[-1])
        elif chance.random() < 0.05:
            drafter.forget(rows.pop(chance.randrange(4)))
        elif chance.random() < 0.1:  # preempted
            row = chance.choice(rows)
            drafter.forget(row)
            drafter.admit(row)
        asked = [row for row in rows if chance.random() < 0.7]
        for row in asked:
            row.token_ids += chance.choices(letters, k=chance.randrange(1, 5))
        depths = [chance.randrange(4) for _ in asked]
        drafts = drafter.draft(asked, [Shape.chain(depth) for depth in depths])
        for row, depth, draft in zip(asked, depths, drafts, strict=True):
            text = row.prompt_token_ids + row.token_ids
            assert draft.token_ids == (searched(text, depth, *sizes) if depth else [])
            assert draft.is_chain and draft.probs == [None] * len(draft)
            num_found += bool(draft.token_ids)
            num_empty += depth > 0 and not draft.token_ids
    assert num_found > 300 and num_empty > 3


def test_which_occurrence() -> None:
    """The longest suffix first, its latest occurrence, and never the suffix itself."""
    drafter = NgramDrafter()
    assert guess(drafter, [1, 2, 3, 7, 8, 9, 6, 3, 5, 1, 2, 3], 3) == [7, 8, 9]  # three tokens long, before "3, 5"
    assert guess(drafter, [1, 2, 7, 1, 2, 8, 1, 2], 1) == [8]
    assert guess(drafter, [1, 2, 3, 4, 5]) == []
    assert guess(drafter, [4]) == []
    assert guess(drafter, [4, 4]) == [4, 4, 4, 4]  # one token long; the copy runs into itself
    assert guess(drafter, [9, 1, 2, 1, 2]) == [1, 2, 1, 2]
    assert guess(NgramDrafter(max_n=2, min_n=2), [1, 2, 3, 2]) == []


def test_a_step_on_a_long_prompt_reads_its_new_tokens_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = NgramDrafter()
    row = row_of(torch.randint(0, 1000, (50_000,)).tolist())
    drafter.admit(row)
    drafter.draft([row], [Shape.chain(3)])
    start, read = time.perf_counter(), []
    tokens_from = Row.tokens_from
    monkeypatch.setattr(Row, "tokens_from", lambda self, i: read.append(tokens_from(self, i)) or read[-1])
    for _ in range(200):
        row.token_ids += [5, 6]
        drafter.draft([row], [Shape.chain(3)])
    assert [len(tokens) for tokens in read] == [2] * 200
    assert time.perf_counter() - start < 2  # about 2 ms; an index made anew would take half a minute
    assert 50_000 < drafter.num_bytes < 50_000 * 1000


def test_a_loop_is_drafted_to_its_full_depth() -> None:
    """The ABC cycle: nothing to copy in the first round of the alphabet, all of it in the second."""
    trunk = script_trunk("abcdefgha", max_positions=64)
    [done] = Engine(MTPModel(trunk), drafter="ngram").generate(["a"], SamplingParams(max_tokens=40), depth=4)
    assert done.text == ("bcdefgha" * 5)[:40]
    assert done.stats.acceptance_rate == 1.0
    assert done.num_rounds == 8 + -(-32 // 5)  # "a" is known again after eight tokens
    assert done.token_ids == encode(done.text)


def test_sizes_are_checked() -> None:
    for sizes in (
        {"max_n": 0},
        {"min_n": 0},
        {"max_n": 1, "min_n": 2},
        {"max_n": True},
        {"max_n": "3"},
        {"min_n": 1.5},
    ):
        with pytest.raises(UsageError, match="give 1 <= min_n <= max_n"):
            DrafterConfig("ngram", **sizes)  # type: ignore[arg-type]
    assert [
        DrafterConfig("ngram").min_n,
        DrafterConfig("ngram+heads").min_n,
        DrafterConfig("ngram+heads", max_n=1).min_n,
    ] == [1, 2, 1]
