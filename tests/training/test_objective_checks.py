"""Wrong settings of the objective are refused with the key, its value and what is allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from foretell.config import HeadsConfig
from foretell.errors import UsageError
from foretell.training.objective_checks import check_objective
from foretell.training.place import Place
from foretell.training.recipe import ObjectiveConfig, Recipe, TrainConfig


def check(config: dict[str, Any], trunk: Any, heads: HeadsConfig | None = HeadsConfig(num_depths=2)) -> None:  # noqa: B008
    text = "[objective]\n" + "\n".join(f"{name} = ..." for name in config)
    recipe = Recipe("out", "run", heads=heads, objective=ObjectiveConfig(**config), train=TrainConfig(trunk=trunk))
    check_objective(recipe, Place(Path("r.toml"), text))


@pytest.mark.parametrize("trunk", ["frozen", "joint"])
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"weights": (1.0,)}, "weights is (1.0,); allowed: 2 numbers, one a depth"),
        ({"weights": (0.0, 0.0)}, "weights is (0.0, 0.0); allowed: 0 or more each, and one above 0"),
        ({"weights": (1.0, float("nan"))}, "weights is (1.0, nan); allowed: 0 or more each"),
        ({"decay": 0.0}, "decay is 0.0; allowed: above 0"),
        ({"mtp_lambda": -0.1}, "mtp_lambda is -0.1; allowed: 0 or more"),
        ({"mtp_lambda": float("nan")}, "mtp_lambda is nan; allowed: 0 or more"),
        ({"lambda_end": -0.1}, "lambda_end is -0.1; allowed: 0 or more"),
        ({"lambda_share": 0.0}, "lambda_share is 0.0; allowed: above 0 and at most 1"),
        ({"lambda_share": 1.5}, "lambda_share is 1.5; allowed: above 0 and at most 1"),
        ({"curriculum": "forward", "curriculum_share": 0.0}, "curriculum_share is 0.0; allowed: above 0 and at most 1"),
        ({"loss": "ce_then_tv", "tv_from": 1.1}, "tv_from is 1.1; allowed: 0 to 1"),
        ({"gradient_share_steps": -1}, "gradient_share_steps is -1; allowed: 0 (= never) or more"),
        (
            {"target": "distribution", "loss": "ce"},
            "loss is 'ce'; allowed: auto, kl, soft_ce, reverse_kl, tv, for target \"distribution\"",
        ),
        ({"target": "data", "loss": "kl"}, "loss is 'kl'; allowed: auto, ce, ce_then_tv, for target \"data\""),
        ({"target": "argmax", "loss": "tv"}, "loss is 'tv'; allowed: auto, ce, ce_then_tv, for target \"argmax\""),
        (
            {"target": "distribution", "loss": "ce_then_tv"},
            "loss is 'ce_then_tv'; allowed: auto, kl, soft_ce, reverse_kl, tv, for target",
        ),
        ({"lambda_share": 0.5}, "lambda_share is 0.5; allowed: 'auto', the default; it has an effect only where"),
        ({"lambda_end": 0.2}, "lambda_end is 0.2; allowed: 0.1, the default; it has an effect only where lambda_sch"),
        ({"tv_from": 0.5}, "tv_from is 0.5; allowed: 0.75, the default; it has an effect only where loss is ce_then"),
        ({"curriculum_share": 0.5}, "curriculum_share is 0.5; allowed: 1.0, the default; it has an effect only where"),
        ({"decay": 0.5, "weights": (1.0, 2.0)}, "decay is 0.5; allowed: 0.8, the default; it has an effect only where"),
        ({"reduction": "sum", "weights": (1.0, 2.0)}, "reduction is 'sum'; allowed: 'mean', the default"),
    ],
    ids=str,
)
def test_refused(config: dict[str, Any], message: str, trunk: str) -> None:
    with pytest.raises(UsageError, match=r"r\.toml:\d+: \[objective\] " + re.escape(message)):
        check(config, trunk)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"lambda_schedule": "step"}, "lambda_schedule is 'step'; allowed: 'constant'"),
        ({"detach": ("trunk",)}, "detach is ('trunk',); allowed: ()"),
        ({"gradient_share_steps": 5}, "gradient_share_steps is 5; allowed: 0"),
    ],
    ids=str,
)
def test_refused_for_a_frozen_trunk(config: dict[str, Any], message: str) -> None:
    check(config, "joint")
    with pytest.raises(
        UsageError, match=re.escape(message) + ", the default; it has an effect only where the trunk tr"
    ):
        check(config, "frozen")


def test_without_heads_there_is_no_objective_to_set() -> None:
    check({}, "joint", heads=None)
    with pytest.raises(UsageError, match=r"r\.toml:1: \[objective\] is about heads, and there are none"):
        check({"decay": 0.5}, "joint", heads=None)


@pytest.mark.parametrize("trunk", ["frozen", "joint"])
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"loss": "kl", "target": "distribution"},
        {"loss": "tv"},
        {"loss": "ce_then_tv", "tv_from": 0.5, "target": "argmax"},
        {"weights": (1.0, 0.0)},
        {"decay": 1.0, "reduction": "sum", "mtp_lambda": 0.1},
        {"curriculum": "reverse", "curriculum_share": 0.5},
    ],
    ids=str,
)
def test_allowed(config: dict[str, Any], trunk: str) -> None:
    check(config, trunk)


@pytest.mark.parametrize("schedule", ["step", "linear", "cosine"])
def test_schedules_beside_a_trained_trunk(schedule: str) -> None:
    check({"lambda_schedule": schedule, "lambda_end": 0.0, "lambda_share": 0.5}, "joint")
    with pytest.raises(UsageError, match="lambda_end is 0.0"):
        check({"lambda_schedule": "warmup", "lambda_end": 0.0}, "joint")
