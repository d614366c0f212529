"""What a run says while it trains: a line a log step beside the progress bar, and metrics.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import ProgressCallback, TrainerCallback


class StepLines(ProgressCallback):
    """The Trainer's progress bar; the figures as one short line in place of a dictionary."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """A line for figures of training; what the Trainer says at its end is in our own report."""
        if state.is_world_process_zero and self.training_bar is not None and logs and "loss" in logs:
            self.training_bar.write(step_line(state.global_step, state.max_steps, logs))


def step_line(step: int, num_steps: int, logs: dict[str, float]) -> str:
    """``step 20/600  loss 3.780  trunk 2.911  heads 3.105 3.302  agree 0.41 0.33  lr 0.001``."""
    depths = range(1, 1 + sum(name.startswith("loss_") and name != "loss_0" for name in logs))
    parts = [f"step {step}/{num_steps}", f"loss {logs['loss']:.3f}"]
    if "loss_0" in logs:
        parts.append(f"trunk {logs['loss_0']:.3f}")
    if depths:
        parts.append("heads " + " ".join(f"{logs[f'loss_{k}']:.3f}" for k in depths if f"loss_{k}" in logs))
        parts.append("agree " + " ".join(f"{logs[f'agreement_{k}']:.2f}" for k in depths if f"agreement_{k}" in logs))
    if "learning_rate" in logs:
        parts.append(f"lr {logs['learning_rate']:.2g}")
    return "  ".join(parts)


class JsonlMetrics(TrainerCallback):
    """Appends every log line to ``metrics.jsonl``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """One line: the step, and what the Trainer logs."""
        if state.is_world_process_zero:
            with self.path.open("a", encoding="utf-8") as sink:
                sink.write(json.dumps({"step": state.global_step, **(logs or {})}) + "\n")
