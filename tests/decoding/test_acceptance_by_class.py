"""AcceptanceByClass: the chance of a drafted token, by class, depth and row."""

from __future__ import annotations

import random

import pytest

from foretell.decoding.acceptance import AcceptanceByClass

PRIOR = [0.8 * 0.9**k for k in range(5)]


def judged(acceptance: AcceptanceByClass, label: str, *rounds: tuple[int, int], row_id: int | None = None) -> None:
    """One step each: drafted, accepted."""
    for num_drafted, num_accepted in rounds:
        acceptance.observe(label, num_drafted, num_accepted, row_id)
        acceptance.advance()


def test_the_prior() -> None:
    acceptance = AcceptanceByClass()
    assert acceptance.alphas("", 5) == pytest.approx(PRIOR)
    assert acceptance.expected_tokens("", 0) == 1.0
    assert acceptance.expected_tokens("", 2) == pytest.approx(1 + 0.8 + 0.8 * 0.72)


@pytest.mark.parametrize("truth", [[0.9, 0.8, 0.6], [0.3, 0.9, 0.5], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
def test_it_finds_the_truth(truth: list[float]) -> None:
    rng = random.Random(0)
    acceptance = AcceptanceByClass()
    means = [0.0] * 3
    for step in range(4000):
        k = 0
        while k < 3 and rng.random() < truth[k]:
            k += 1
        judged(acceptance, "", (3, k))
        if step >= 1000:
            means = [mean + alpha / 3000 for mean, alpha in zip(means, acceptance.alphas("", 3), strict=True)]
    reached = 1.0
    for mean, alpha in zip(means, truth, strict=True):
        if reached > 0:
            # A prior of four drafts, twice (all classes, this class), beside 32 decayed ones.
            assert mean == pytest.approx(alpha, abs=0.06)
        reached *= alpha


def test_only_depths_that_were_reached_are_judged() -> None:
    acceptance = AcceptanceByClass()
    judged(acceptance, "", *[(3, 1)] * 50)
    first, second, third = acceptance.alphas("", 3)
    assert first > 0.97
    assert second < 0.05
    assert third == pytest.approx(second * 0.9, abs=0.1)  # never judged: from the depth before, in all classes
    judged(acceptance, "", *[(1, 1)] * 50)  # a draft that ends early says nothing of deeper ones
    assert acceptance.alphas("", 2)[1] == pytest.approx(second, abs=0.001)


def test_a_change_is_followed() -> None:
    acceptance = AcceptanceByClass()
    judged(acceptance, "", *[(1, 1)] * 200)
    judged(acceptance, "", *[(1, 0)] * 40)
    assert acceptance.alphas("", 1)[0] < 0.35
    judged(acceptance, "", *[(1, 1)] * 40)
    assert acceptance.alphas("", 1)[0] > 0.65


def test_evidence_from_long_ago_weighs_less() -> None:
    fresh, old = AcceptanceByClass(), AcceptanceByClass()
    for acceptance, pause in ((fresh, 0), (old, 600)):
        judged(acceptance, "", *[(1, 0)] * 60)
        for _ in range(pause):
            acceptance.advance()
        assert acceptance.alphas("", 1)[0] < 0.05  # a pause alone changes nothing
        judged(acceptance, "", *[(1, 1)] * 3)
    assert old.alphas("", 1)[0] > 0.5 > 0.2 > fresh.alphas("", 1)[0]


def test_classes_are_told_apart_and_new_ones_start_from_all() -> None:
    acceptance = AcceptanceByClass()
    for _ in range(60):
        judged(acceptance, "code", (2, 2))
        judged(acceptance, "noise", (2, 0))
    assert acceptance.alphas("code", 1)[0] > 0.9
    assert acceptance.alphas("noise", 1)[0] < 0.1
    assert acceptance.alphas("new", 1)[0] == pytest.approx(0.5, abs=0.05)


def test_a_row_backs_off_before_its_class() -> None:
    acceptance = AcceptanceByClass()
    for _ in range(60):
        for row_id in range(7):
            acceptance.observe("", 2, 2, row_id)
        acceptance.observe("", 2, 0, 7)
        acceptance.advance()
    assert acceptance.gains("", 2, 0)[0] > acceptance.gains("", 2)[0] > 0.7
    assert acceptance.gains("", 2, 7)[0] < 0.5
    assert acceptance.gains("", 2, 99) == acceptance.gains("", 2)  # a row not seen yet
    before = acceptance.gains("", 2, 7)[0]
    for _ in range(800):
        acceptance.advance()
    assert acceptance.gains("", 2, 7)[0] > before + 0.2  # tried again some time
    acceptance.forget(7)
    assert acceptance.gains("", 2, 7) == acceptance.gains("", 2)


def test_gains_fall_and_add_up() -> None:
    acceptance = AcceptanceByClass()
    judged(acceptance, "", *[(4, 4)] * 200, row_id=1)
    gains = acceptance.gains("", 5, 1)
    assert all(0 < b < a < 1 for a, b in zip(gains, gains[1:], strict=False))
    assert acceptance.expected_tokens("", 5, 1) == pytest.approx(1 + sum(gains))


def test_no_draft_is_no_evidence() -> None:
    acceptance = AcceptanceByClass()
    judged(acceptance, "", *[(0, 0)] * 100, row_id=1)
    assert acceptance.alphas("", 5) == pytest.approx(PRIOR)
    assert acceptance.gains("", 1, 1) == pytest.approx(PRIOR[:1])


def test_what_it_remembers_is_bounded() -> None:
    acceptance = AcceptanceByClass()
    judged(acceptance, "kept", *[(1, 0)] * 50)
    for i in range(5000):
        judged(acceptance, f"label {i}", (1, 1), row_id=i)
        acceptance.alphas(f"other {i}", 3)
        if i % 100 == 0:
            judged(acceptance, "kept", (1, 0))
    assert len(acceptance._labels) == 256 and "kept" in acceptance._labels
    assert len(acceptance._rows) == 4096
