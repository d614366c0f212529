"""Lambda, curriculum and loss at the edges of a run."""

from __future__ import annotations

from typing import Any

import pytest

from foretell.training.recipe import ObjectiveConfig
from foretell.training.schedule import depth_weights, phase_at


def lambdas(progresses: list[float], train_trunk: bool = True, **config: Any) -> list[float]:
    return [phase_at(ObjectiveConfig(**config), p, 2, train_trunk).mtp_lambda for p in progresses]


def active(progresses: list[float], train_trunk: bool, num_depths: int = 3, **config: Any) -> list[int]:
    return [phase_at(ObjectiveConfig(**config), p, num_depths, train_trunk).num_active for p in progresses]


def test_lambda_is_constant_by_default() -> None:
    assert lambdas([0.0, 0.5, 1.0]) == [0.3] * 3
    assert lambdas([0.0, 0.5, 1.0], train_trunk=False) == [1.0] * 3
    assert lambdas([0.0, 1.0], mtp_lambda=0.7) == lambdas([0.0, 1.0], False, mtp_lambda=0.7) == [0.7] * 2


def test_lambda_warms_up_over_a_tenth_of_the_run() -> None:
    assert lambdas([0.0, 0.05, 0.1, 0.5, 1.0], lambda_schedule="warmup") == pytest.approx([0, 0.15, 0.3, 0.3, 0.3])
    assert lambdas([0.0, 0.25, 0.5, 1.0], lambda_schedule="warmup", lambda_share=0.5, mtp_lambda=1.0) == pytest.approx(
        [0, 0.5, 1, 1]
    )


def test_lambda_steps_down_where_deepseek_v3_did() -> None:
    assert lambdas([0.0, 0.675, 10 / 14.8, 0.7, 1.0], lambda_schedule="step") == [0.3, 0.3, 0.1, 0.1, 0.1]
    assert lambdas([0.49, 0.5], lambda_schedule="step", lambda_share=0.5, lambda_end=0.0) == [0.3, 0.0]


def test_lambda_falls_on_a_line_or_a_cosine() -> None:
    line = lambdas([0.0, 0.25, 0.5, 1.0], lambda_schedule="linear", mtp_lambda=0.9)
    assert line == pytest.approx([0.9, 0.7, 0.5, 0.1])
    assert lambdas([0.25, 0.5, 1.0], lambda_schedule="linear", mtp_lambda=0.9, lambda_share=0.5) == pytest.approx(
        [0.5, 0.1, 0.1]
    )
    cosine = lambdas([0.0, 0.25, 0.5, 1.0], lambda_schedule="cosine", mtp_lambda=0.9, lambda_end=0.1)
    assert cosine == pytest.approx([0.9, 0.5 + 0.4 * 2**-0.5, 0.5, 0.1])
    assert lambdas([1 / 3], lambda_schedule="cosine", mtp_lambda=0.9) == pytest.approx([0.7])


def test_a_curriculum_has_stages_of_equal_length() -> None:
    """A trained trunk begins, or ends, alone; a frozen one has at least one depth to train."""
    quarters = [0.0, 0.24, 0.25, 0.49, 0.5, 0.75, 0.99, 1.0]
    assert active(quarters, True, curriculum="forward") == [0, 0, 1, 1, 2, 3, 3, 3]
    assert active(quarters, True, curriculum="reverse") == [3, 3, 2, 2, 1, 0, 0, 0]
    thirds = [0.0, 0.33, 1 / 3, 0.66, 2 / 3, 1.0]
    assert active(thirds, False, curriculum="forward") == [1, 1, 2, 2, 3, 3]
    assert active(thirds, False, curriculum="reverse") == [3, 3, 2, 2, 1, 1]
    assert active(thirds, False, curriculum="none") == [3] * 6


def test_a_curriculum_over_a_share_of_the_run_stays_at_its_end() -> None:
    eighths = [k / 8 for k in range(9)]
    assert active(eighths, True, curriculum="forward", curriculum_share=0.5) == [0, 1, 2, 3, 3, 3, 3, 3, 3]
    assert active(eighths, True, curriculum="reverse", curriculum_share=0.5) == [3, 2, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("train_trunk", [False, True])
@pytest.mark.parametrize("num_depths", [1, 2, 7, 48])
def test_each_stage_has_as_many_steps(num_depths: int, train_trunk: bool) -> None:
    """Rounding moves no step to the stage before: 1/49 * 49 is below 1."""
    num_stages = num_depths + train_trunk
    steps = [s / (5 * num_stages) for s in range(5 * num_stages)]
    found = active(steps, train_trunk, num_depths, curriculum="forward")
    fewest = 0 if train_trunk else 1
    assert found == [fewest + s // 5 for s in range(5 * num_stages)]
    assert active(steps, train_trunk, num_depths, curriculum="reverse") == [
        num_depths - s // 5 for s in range(len(steps))
    ]


def test_without_heads_nothing_is_active() -> None:
    assert active([0.0, 1.0], True, 0, curriculum="forward") == [0, 0]
    assert active([0.0, 1.0], True, 0) == [0, 0]


def test_the_loss_changes_to_total_variation() -> None:
    config = ObjectiveConfig(loss="ce_then_tv")
    assert [phase_at(config, p, 2, False).loss for p in (0.0, 0.74, 0.75, 1.0)] == ["ce", "ce", "tv", "tv"]
    config = ObjectiveConfig(loss="ce_then_tv", tv_from=0.0)
    assert phase_at(config, 0.0, 2, True).loss == "tv"


@pytest.mark.parametrize(
    ("config", "frozen", "joint"),
    [
        ({}, ("distribution", "kl"), ("data", "ce")),
        ({"loss": "ce"}, ("argmax", "ce"), ("data", "ce")),
        ({"loss": "ce_then_tv"}, ("argmax", "ce_then_tv"), ("data", "ce_then_tv")),
        ({"loss": "tv"}, ("distribution", "tv"), ("distribution", "tv")),
        ({"target": "distribution"}, ("distribution", "kl"), ("distribution", "kl")),
        ({"target": "argmax"}, ("argmax", "ce"), ("argmax", "ce")),
        ({"target": "data"}, ("data", "ce"), ("data", "ce")),
    ],
    ids=str,
)
def test_what_auto_means(config: dict[str, Any], frozen: tuple[str, str], joint: tuple[str, str]) -> None:
    objective = ObjectiveConfig(**config)
    assert (objective.target_for(False), objective.loss_for(False)) == frozen
    assert (objective.target_for(True), objective.loss_for(True)) == joint


def test_weights_of_the_depths() -> None:
    assert depth_weights(ObjectiveConfig(decay=0.5), 3) == pytest.approx([4 / 7, 2 / 7, 1 / 7])
    assert depth_weights(ObjectiveConfig(decay=0.6), 3) == pytest.approx([0.51, 0.31, 0.18], abs=0.005)  # FastMTP
    assert depth_weights(ObjectiveConfig(decay=1.0), 4) == [0.25] * 4
    assert depth_weights(ObjectiveConfig(decay=0.5, reduction="sum"), 3) == [1.0, 0.5, 0.25]
    assert depth_weights(ObjectiveConfig(weights=(1.0, 0.0, 3.0)), 3) == [1.0, 0.0, 3.0]
