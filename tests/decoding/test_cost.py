"""StepCost: what a step of a given shape takes, from few and noisy samples."""

from __future__ import annotations

import random

import pytest

from foretell.decoding.cost import StepCost, bucket, node_bucket
from foretell.decoding.curve import Curve, rising


def seen(*samples: tuple[int, int, float], times: int = 3) -> StepCost:
    """Rows, nodes, seconds of plain passes."""
    cost = StepCost()
    for rows, nodes, seconds in samples * times:
        cost.observe_pass(rows, nodes, seconds)
    return cost


def test_buckets() -> None:
    assert [bucket(n) for n in (1, 2, 7, 8, 9, 16, 17, 100)] == [1, 2, 7, 8, 16, 16, 32, 128]
    assert [node_bucket(n) for n in (1, 8, 9, 10, 11, 13, 16, 17, 24, 33, 64, 65)] == [
        1, 8, 10, 10, 12, 14, 16, 20, 24, 40, 64, 80,
    ]  # fmt: skip
    assert all(n <= node_bucket(n) <= 1.25 * n for n in range(1, 3000))


def test_nothing_is_known_at_first() -> None:
    cost = StepCost()
    assert cost.pass_s(1, 1) is None
    assert cost.pass_range(1, 1, 4) is None
    assert cost.draft_s(1, 3) == 0.0  # so that a draft is tried
    cost.observe_pass(1, 1, 0.021)
    assert cost.pass_s(1, 1) == cost.pass_s(1, 6) == pytest.approx(0.021)


def test_between_and_beyond_measured_points() -> None:
    cost = seen((1, 1, 0.020), (1, 3, 0.024), (1, 5, 0.032), (1, 6, 0.036))
    assert cost.pass_s(1, 2) == pytest.approx(0.022)
    assert cost.pass_s(1, 4) == pytest.approx(0.028)
    assert cost.pass_s(1, 9) == pytest.approx(0.036 + 3 * 0.004)  # the slope from 3 to 6
    assert cost.pass_range(1, 1, 7) == pytest.approx([0.020, 0.022, 0.024, 0.028, 0.032, 0.036, 0.040])


def test_more_nodes_are_never_cheaper() -> None:
    rng = random.Random(0)
    cost = StepCost()
    for _ in range(200):
        cost.observe_pass(4, rng.randint(4, 24), rng.uniform(0.02, 0.03))
    seconds = cost.pass_range(4, 4, 40)
    assert seconds is not None and seconds == sorted(seconds)
    assert rising([(1, 2.0, 1), (2, 4.0, 3), (3, 1.0, 3), (4, 3.0, 1)]) == [(1, 2.0), (2, 2.5), (3, 2.5), (4, 3.0)]


def test_a_range_is_its_single_values() -> None:
    for seed in range(100):
        rng = random.Random(seed)
        xs = sorted({rng.choice([rng.randint(1, 30), rng.uniform(1, 30)]) for _ in range(rng.randint(1, 6))})
        curve = Curve([(x, i + rng.random()) for i, x in enumerate(xs)])
        low = rng.randint(1, 20)
        assert curve.range(low, low + 9) == pytest.approx([curve.at(x) for x in range(low, low + 10)])


def test_outliers_are_passed_over() -> None:
    rng = random.Random(1)
    cost = StepCost()
    for _ in range(300):
        late = rng.random() < 0.2
        cost.observe_pass(1, 2, rng.gauss(0.02, 0.001) * (5 if late else 1))
        seconds = cost.pass_s(1, 2)
    assert seconds == pytest.approx(0.02, rel=0.1)


def test_one_late_sample_makes_no_depth_dear() -> None:
    cost = seen((1, 1, 0.020), (1, 2, 0.022))
    cost.observe_pass(1, 4, 0.200)
    cost.observe_draft(1, 3, 0.5)  # the first draft reads the prompt
    assert cost.pass_s(1, 4) == pytest.approx(0.026)
    assert cost.draft_s(1, 3) == 0.0
    for _ in range(2):
        cost.observe_pass(1, 4, 0.040)
        cost.observe_draft(1, 3, 0.003)
    assert cost.pass_s(1, 4) == pytest.approx(0.040)  # now it is sure
    assert cost.draft_s(1, 3) == pytest.approx(0.003)
    assert cost.draft_s(1, 1) == pytest.approx(0.001)
    assert cost.draft_s(1, 6) == pytest.approx(0.006)


def test_a_machine_that_changes_is_followed() -> None:
    cost = seen((1, 1, 0.02), times=20)
    for _ in range(9):
        cost.observe_pass(1, 1, 0.05)
    assert cost.pass_s(1, 1) == pytest.approx(0.05)
    for _ in range(3):
        cost.observe_pass(1, 1, 0.02)
    assert cost.pass_s(1, 1) == pytest.approx(0.02)


def test_old_samples_give_way_to_three_new_ones() -> None:
    cost = seen((1, 4, 0.01), times=9)
    for _ in range(300):
        cost.observe_pass(1, 1, 0.01)
    for _ in range(3):
        cost.observe_pass(1, 4, 0.03)
    assert cost.pass_s(1, 4) == pytest.approx(0.03)


def test_other_row_counts_say_what_is_missing() -> None:
    cost = seen((8, 8, 0.030), (8, 16, 0.045), (8, 32, 0.090))
    assert cost.pass_s(6, 16) == pytest.approx(0.045)  # nothing of its own: as for 8 rows
    # Own points where there are some, and beyond them the shape of all, scaled to meet the ends.
    joined = Curve([(8.0, 2.0), (12.0, 4.0)]).beside(Curve([(4.0, 2.0), (8.0, 4.0), (12.0, 5.0), (16.0, 10.0)]))
    assert [joined.at(x) for x in (4, 6, 8, 10, 12, 14, 16)] == pytest.approx([1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0])


def test_drafting_is_known_by_rows_that_draft() -> None:
    cost = StepCost()
    for _ in range(3):
        cost.observe_draft(4, 2, 0.004)
        cost.observe_draft(8, 2, 0.008)
    assert cost.draft_s(4, 2) == pytest.approx(0.004)
    assert cost.draft_s(8, 2) == pytest.approx(0.008)
    assert cost.draft_s(8, 1) == pytest.approx(0.004)
    assert cost.draft_s(0, 0) == cost.draft_s(8, 0) == 0.0
    assert cost.draft_range(8, 2) == [0.0, *(cost.draft_s(rows, 2) for rows in range(1, 9))]


def test_a_range_follows_new_samples() -> None:
    cost = StepCost()
    for draft_s in (0.004, 0.001):
        for _ in range(9):
            cost.observe_draft(1, 2, draft_s)
        assert cost.draft_range(1, 2) == pytest.approx([0.0, draft_s])


def test_trees_are_known_by_their_levels() -> None:
    cost = StepCost()
    assert cost.tree_s(1, 2) == 0.0
    for _ in range(3):
        cost.observe_tree(1, 2, 0.006)
        cost.observe_draft(1, 2, 0.002)
    assert cost.tree_s(1, 2) == pytest.approx(0.006)
    assert cost.tree_s(1, 3) == pytest.approx(0.009)
    assert cost.draft_s(1, 2) == pytest.approx(0.002)
