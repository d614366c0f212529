"""What changes over a run: lambda, how many depths train, and the loss; pure functions of progress, 0 to 1.

lambda: "constant"; "warmup" rises from 0 to mtp_lambda; "step" is mtp_lambda, then lambda_end (DeepSeek-V3, arXiv
2412.19437: 0.3 for 10T of 14.8T tokens, then 0.1); "linear" and "cosine" fall from mtp_lambda to lambda_end.
lambda_share says over, or until, which share of the run; "auto": see ``LAMBDA_SHARE``.

Curriculum (arXiv 2505.22757): curriculum_share of the run is cut into stages of equal length, one for each number of
depths from 0 (a frozen trunk: from 1, it has nothing else to train) to K. "forward" grows, "reverse" shrinks; what is
reached last stays until the end. Depths that are out keep their weight to themselves: the others' do not grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretell.training.recipe import LossName, ObjectiveConfig

LAMBDA_SHARE = {"constant": 1.0, "warmup": 0.1, "step": 10 / 14.8, "linear": 1.0, "cosine": 1.0}
"""lambda_share of each schedule where it is "auto"."""

_ROUNDING = 1e-9
"""step / num_steps may fall short of a stage's start by rounding; without this the stage would begin a step late."""


@dataclass(frozen=True)
class Phase:
    """What holds at one moment of a run. ``num_active``: depths 1..num_active train, the others are not computed."""

    mtp_lambda: float
    num_active: int
    loss: LossName


def phase_at(config: ObjectiveConfig, progress: float, num_depths: int, train_trunk: bool) -> Phase:
    """``progress``: share of the run that lies behind, 0 at the first step."""
    loss = config.loss_for(train_trunk)
    if loss == "ce_then_tv":
        loss = "ce" if progress + _ROUNDING < config.tv_from else "tv"
    num_active = _num_active(config, progress, num_depths, train_trunk)
    return Phase(_lambda_at(config, progress, train_trunk), num_active, loss)


def depth_weights(config: ObjectiveConfig, num_depths: int) -> list[float]:
    """weight_k of depths 1..K: the list given, or decay^(k-1), normalised to sum 1 by reduction "mean"."""
    if config.weights:
        return list(config.weights)
    raw = [config.decay**k for k in range(num_depths)]
    return [w / sum(raw) for w in raw] if config.reduction == "mean" else raw


def _lambda_at(config: ObjectiveConfig, progress: float, train_trunk: bool) -> float:
    start, end, schedule = config.lambda_for(train_trunk), config.lambda_end, config.lambda_schedule
    share = LAMBDA_SHARE[schedule] if config.lambda_share == "auto" else config.lambda_share
    done = min(1.0, progress / share)
    if schedule == "warmup":
        return start * done
    if schedule == "step":
        return start if progress + _ROUNDING < share else end
    if schedule == "linear":
        return start + (end - start) * done
    if schedule == "cosine":
        return end + (start - end) * (1 + math.cos(math.pi * done)) / 2
    return start


def _num_active(config: ObjectiveConfig, progress: float, num_depths: int, train_trunk: bool) -> int:
    if config.curriculum == "none" or num_depths == 0:
        return num_depths
    fewest = 0 if train_trunk else 1
    last_stage = num_depths - fewest
    stage = min(last_stage, math.floor(progress / config.curriculum_share * (last_stage + 1) + _ROUNDING))
    return fewest + stage if config.curriculum == "forward" else num_depths - stage
