"""Models and files to plan with; presets are built once."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from foretell.planning.model import PlanModel
from foretell.planning.open_model import open_model


@functools.cache
def preset(name: str) -> PlanModel:
    """A preset's model."""
    return open_model(name)


def write_json(path: Path, values: Any) -> Path:
    """A JSON file."""
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def spread(seconds: float) -> dict[str, float]:
    """A spread without width."""
    return {"median": seconds, "low": seconds, "high": seconds}


def run(batch: int, depth: int, rate: float, **other: Any) -> dict[str, Any]:
    """One run of a bench file over all prompts; one request at a time unless ``mode`` says otherwise."""
    shares = other.pop("shares", [0.5**k for k in range(1, depth + 1)])
    values = {
        "system": "foretell",
        "depth": depth,
        "num_nodes": 0,
        "batch": batch,
        "mode": "decode",
        "domain": "all",
        "num_prompts": 2,
        "num_output_tokens": 40,
        "decode_tokens_per_s": spread(rate),
        "speedup": spread(1.0),
        "mean_acceptance_length": 1 + sum(shares) if depth else None,
        "acceptance_by_depth": shares,
        "time_share": {"draft": 0.0, "verify": 1.0, "other": 0.0},
    }
    return values | other


def bench(
    *runs: dict[str, Any], passes: Any = (), drafts: Any = (), command: str = "foretell bench demo --repeats 1"
) -> Any:
    """A bench file: passes (batch, rows, nodes, seconds, steps), drafts (batch, rows, depth, nodes, seconds, steps)."""
    return {
        "environment": {"command": command, "cpu": "c", "threads": 2, "dtype": "bfloat16"},
        "runs": list(runs),
        "step_costs": {
            "pass": [
                {"batch": b, "rows": r, "nodes": n, "seconds": spread(s), "num_steps": k} for b, r, n, s, k in passes
            ],
            "draft": [
                {"batch": b, "rows": r, "depth": d, "nodes": n, "seconds": spread(s), "num_steps": k}
                for b, r, d, n, s, k in drafts
            ],
        },
    }
