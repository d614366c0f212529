from __future__ import annotations

import pytest

from foretell.analysis.texts import BenchPrompt, groups_of
from foretell.errors import UsageError


def prompts(**counts: int) -> list[BenchPrompt]:
    return [BenchPrompt(domain, [1]) for domain, count in counts.items() for _ in range(count)]


def test_groups_hold_about_twice_the_batch_and_one_domain() -> None:
    groups = groups_of(prompts(chat=20, code=9), 4)
    assert [(g.domain, len(g.indices)) for g in groups] == [("chat", 10), ("chat", 10), ("code", 9)]
    assert sorted(i for g in groups for i in g.indices) == list(range(29))
    assert all({p.domain for p in g.prompts} == {g.domain} for g in groups)


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 8, 16])
def test_no_group_is_smaller_than_the_batch(batch: int) -> None:
    for count in range(batch, 70):
        sizes = [len(g.indices) for g in groups_of(prompts(a=count), batch)]
        assert sum(sizes) == count and min(sizes) >= batch and max(sizes) <= 3 * batch


def test_small_domains_are_mixed() -> None:
    groups = groups_of(prompts(chat=6, code=2), 3)
    assert [(g.domain, g.indices) for g in groups] == [("mixed", list(range(8)))]
    spread = groups_of(prompts(chat=30, code=2), 4)
    assert {g.domain for g in spread} == {"mixed"} and spread[0].indices == [0, 4, 8, 12, 16, 20, 24, 28]


def test_too_few_prompts_are_refused() -> None:
    with pytest.raises(UsageError, match=r"batch of 4 .* there are 3; give"):
        groups_of(prompts(chat=3), 4)
