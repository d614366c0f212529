"""What the objective's settings must be, alone and together; what would have no effect is refused, too."""

from __future__ import annotations

import math
from dataclasses import fields

from foretell.errors import UsageError
from foretell.training.place import Place
from foretell.training.recipe import ObjectiveConfig, Recipe

_TO_TOKENS = ("auto", "ce", "ce_then_tv")
_TO_DISTRIBUTION = ("auto", "kl", "soft_ce", "reverse_kl", "tv")
_DEFAULTS = {f.name: f.default for f in fields(ObjectiveConfig)}


def check_objective(recipe: Recipe, place: Place) -> None:
    """Raise UsageError with the key, its value and what is allowed."""
    objective = recipe.objective
    if recipe.heads is None and objective != ObjectiveConfig():
        raise UsageError(f"{place.of('objective')}: [objective] is about heads, and there are none; take it out")
    if not recipe.init_from and recipe.heads is not None:  # else the adapter says, when it is read, how many depths
        check_weights(objective, recipe.heads.num_depths, place.of("objective", "weights"))
    _check_values(objective, place)
    _check_combinations(objective, place, frozen=recipe.train.trunk == "frozen")


def check_weights(objective: ObjectiveConfig, num_depths: int, where: str) -> None:
    """Raise UsageError where ``weights`` are given and are not one a depth."""
    if len(objective.weights) not in (0, num_depths):
        raise UsageError(
            f"{where}: [objective] weights is {objective.weights!r}; allowed: {num_depths} numbers, one a depth"
        )


def _check_values(objective: ObjectiveConfig, place: Place) -> None:
    def need(ok: bool, name: str, allowed: str) -> None:
        place.need(ok, "objective", name, getattr(objective, name), allowed)

    weights = objective.weights
    some = not weights or sum(weights) > 0
    need(all(0 <= w < math.inf for w in weights) and some, "weights", "0 or more each, and one above 0")
    need(0 < objective.decay < math.inf, "decay", "above 0")
    for name in ("mtp_lambda", "lambda_end"):
        value = getattr(objective, name)
        need(value == "auto" or 0 <= value < math.inf, name, "0 or more")
    for name in ("lambda_share", "curriculum_share"):
        value = getattr(objective, name)
        need(value == "auto" or 0 < value <= 1, name, "above 0 and at most 1, a share of the run")
    need(0 <= objective.tv_from <= 1, "tv_from", "0 to 1, a share of the run")
    need(objective.gradient_share_steps >= 0, "gradient_share_steps", "0 (= never) or more")


def _check_combinations(objective: ObjectiveConfig, place: Place, frozen: bool) -> None:
    loss, target = objective.loss, objective.target
    if target != "auto":
        losses = _TO_DISTRIBUTION if target == "distribution" else _TO_TOKENS
        place.need(loss in losses, "objective", "loss", loss, f'{", ".join(losses)}, for target "{target}"')
    schedule = objective.lambda_schedule
    for unused, names, reason in (
        (frozen, ("lambda_schedule", "detach", "gradient_share_steps"), 'the trunk trains ([train] trunk = "joint")'),
        (schedule in ("constant", "warmup"), ("lambda_end",), "lambda_schedule is step, linear or cosine"),
        (schedule == "constant", ("lambda_share",), "lambda_schedule is not constant"),
        (loss != "ce_then_tv", ("tv_from",), "loss is ce_then_tv"),
        (objective.curriculum == "none", ("curriculum_share",), "curriculum is forward or reverse"),
        (bool(objective.weights), ("decay", "reduction"), "no weights are given"),
    ):
        for name in names:
            value = getattr(objective, name)
            allowed = f"{_DEFAULTS[name]!r}, the default; it has an effect only where {reason}"
            place.need(not unused or value == _DEFAULTS[name], "objective", name, value, allowed)
