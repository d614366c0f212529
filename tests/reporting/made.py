"""Small result files with known figures, as the commands write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "cpu": "Some CPU",
    "cores": 2,
    "gpu": None,
    "torch": "2.13.0",
    "transformers": "5.24.0",
    "foretell": "0.1.0",
    "threads": 2,
    "date": "2026-01-02T03:04:05+00:00",
    "dtype": "bfloat16",
    "command": "foretell bench demo --heads adapters/x --batch 1 --depths 0,1 --num-prompts 2",
}


def spread(median: float, low: float | None = None, high: float | None = None) -> dict[str, float]:
    return {"median": median, "low": median if low is None else low, "high": median if high is None else high}


def run(depth: int | str, batch: int = 1, domain: str = "all", speedup: Any = None, **more: Any) -> dict[str, Any]:
    drafts = depth != 0
    return {
        "system": "foretell",
        "drafter": "heads" if drafts else None,
        "depth": depth,
        "num_nodes": 0,
        "batch": batch,
        "mode": "decode" if batch == 1 else "end-to-end",
        "domain": domain,
        "num_prompts": 4,
        "decode_tokens_per_s": spread(30.0, 25.0, 35.0),
        "speedup": spread(1.0) if speedup is None else speedup,
        "speedup_over_reference": None,
        "mean_acceptance_length": 1.5 if drafts else None,
        "acceptance_by_depth": [0.5, 0.25][: depth if isinstance(depth, int) else 2],
        "time_share": {"draft": 0.125 if drafts else 0.0, "verify": 0.75, "other": 0.125},
        "step_ms": 40.0,
        "round_cost": 1.1,
        "predicted_speedup": 1.36,
        "extra_memory_bytes": 36_000_000 if drafts else 0,
        **more,
    }


def bench(batches: tuple[int, ...] = (1,), command: str | None = None, **more: Any) -> dict[str, Any]:
    """Depth 1 gains 1.4 at batch 1 and loses, 0.9, from 8 on; on chat depth 2 loses everywhere."""
    runs = []
    for batch in batches:
        one = spread(1.4, 1.1, 1.7) if batch < 8 else spread(0.9, 0.8, 1.05)
        runs += [run(0, batch), run(1, batch, speedup=one), run(2, batch, speedup=spread(1.2, 1.05, 1.4))]
        runs += [run(0, batch, "chat"), run(2, batch, "chat", spread(0.95, 0.9, 1.0)), run(0, batch, "code")]
    steps = [(batch, nodes) for batch in batches for nodes in (batch, 2 * batch, 3 * batch)]
    return {
        "foretell": "0.1.0",
        "environment": {**ENVIRONMENT, "command": command or ENVIRONMENT["command"]},
        "runs": runs,
        "differences": [],
        "batches": [{"batch": b, "num_texts_unlike_depth_0": {"foretell": 0}, "notes": []} for b in batches],
        "step_costs": {
            "pass": [
                {"batch": b, "rows": b, "nodes": n, "num_steps": 50, "seconds": spread(0.03 * n / b, 0.02, 0.3)}
                for b, n in steps
            ],
            "draft": [],
        },
        **more,
    }


def difference(verdict: str = "near tie", **more: Any) -> dict[str, Any]:
    return {
        "prompt": 3,
        "domain": "chat",
        "depth": 2,
        "position": 7,
        "expected_token": 1,
        "got_token": 2,
        "expected_text": " yes",
        "got_text": " no",
        "gap": 0.03,
        "limit": 0.25,
        "verdict": verdict,
        "batch": 1,
        **more,
    }


def verify(passed: bool = True, differences: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    greedy = {"depths": [1, 2], "num_prompts": 5, "num_texts": 10, "num_tokens": 320, "num_accepted_tokens": 77}
    laws = [
        {"passed": True, "settings": {"temperature": 0.5}, "depth": 3, "num_samples": 2000, "total_variation": 0.0123,
         "limit": 0.063, "acceptance_rate": 0.6}
    ]  # fmt: skip
    return {"passed": passed, "greedy": {**greedy, "differences": differences or []}, "sampling": laws}


def probe() -> dict[str, Any]:
    depths = [
        {"depth": 1, "num_positions": 1000, "agreement": 0.6, "overlap": 0.5, "chained": 0.6},
        {"depth": 2, "num_positions": 990, "agreement": 0.55, "overlap": 0.45, "chained": None},
    ]
    return {"num_records": 9, "depths": depths, "mean_acceptance_length": None}


def compare() -> dict[str, Any]:
    systems = [
        {"name": "parallel", "label": "Parallel heads", "drafter": "heads", "source": "adapters/p", "depth": 3,
         "num_nodes": 0, "extra_parameters": 12_000_000, "extra_memory_bytes": 30_000_000},
        {"name": "ngram", "label": "Prompt look-up", "drafter": "ngram", "source": None, "depth": 3, "num_nodes": 0,
         "extra_parameters": 0, "extra_memory_bytes": 0},
        {"name": "medusa", "label": "Medusa", "drafter": "heads", "source": None, "depth": 3, "num_nodes": 0,
         "extra_parameters": 7_000_000, "extra_memory_bytes": 14_000_000},
    ]  # fmt: skip
    times = {"token_ms": {"median": 25.5, "p95": 41.25}, "draft_overhead": 0.142}
    runs = [
        run(0, name="plain"),
        run(3, speedup=spread(1.6, 1.3, 1.9), name="parallel", **times),
        run(3, speedup=spread(0.85, 0.7, 1.1), name="ngram", **times),
    ]
    return {"foretell": "0.1.0", "environment": ENVIRONMENT, "compare": True, "systems": systems, "runs": runs}


def compare_batches() -> dict[str, Any]:
    """Two batch sizes, two domains, warnings: of "parallel" depth 1 is best at batch 1, depth 3 in the mean."""
    medians = {  # system, depth, nodes -> speed-up at batch 1 and 4
        ("parallel", 1, 0): (1.7, 0.9),
        ("parallel", 3, 0): (1.6, 1.5),
        ("parallel", 3, 8): (1.9, 1.8),
        ("ngram", 3, 0): (0.85, 0.8),
        ("medusa", "auto", 0): (1.2, 1.1),
    }
    runs = []
    for place, batch in enumerate((1, 4)):
        for domain, change in (("all", 0.0), ("chat", -0.25), ("code", 0.25)):
            runs.append(run(0, batch, domain, name="plain", tokens_per_pass=1.0, share_drafted=0.0))
            for (name, depth, nodes), values in medians.items():
                figures = {"name": name, "num_nodes": nodes, "tokens_per_pass": 1.25, "share_drafted": 0.5}
                speedup = spread(values[place] + change, values[place] + change - 0.1, values[place] + change + 0.1)
                runs.append(run(depth, batch, domain, speedup, **figures))
    warnings = ["3 of 4 texts repeat themselves; look-up gains what it would not elsewhere"]
    return {**compare(), "warnings": warnings, "runs": runs}


def control(kind: str, acceptance: float | None, expected: float | None, passed: bool, **more: Any) -> dict[str, Any]:
    return {"passed": passed, "kind": kind, "acceptance": acceptance, "expected": expected, "num_texts": 5,
            "differences": [], **more}  # fmt: skip


def model_law(depth: int | str, distance: float, passed: bool = True, **more: Any) -> dict[str, Any]:
    return {"passed": passed, "depth": depth, "num_nodes": 0, "num_samples": 2000, "distance": distance,
            "limit": 0.0498, "num_outside": 0, "acceptance_rate": 0.4, **more}  # fmt: skip


def verify_all(**changes: Any) -> dict[str, Any]:
    """Every check of a model; it passes."""
    values = {key: value for key, value in verify().items() if key != "sampling"}
    controls = [control("right", 1.0, 1.0, True), control("shifted", 0.125, 0.125, True)]
    laws = [model_law(0, 0.0123, acceptance_rate=None), model_law(3, 0.0234, num_nodes=8)]
    where = {**ENVIRONMENT, "command": "foretell verify demo --controls --sampling", "commit": "abc1234"}
    return {**values, "environment": where, "controls": controls, "model_law": laws, **changes}


def stage(name: str, agrees: bool | None, note: str = "said", **more: Any) -> dict[str, Any]:
    return {"name": name, "acceptance": [0.5, 0.25], "difference": 0.125, "agrees": agrees, "note": note, **more}


def served(first: str | None = "order of halves") -> dict[str, Any]:
    """What probe --served writes without --data."""
    names = ("template", "state convention", "order of halves", "engine")
    stages = [stage(name, name != first, f"about {name}") for name in names]
    stages.insert(3, stage("data", None, "no --data to compare with", acceptance=[], difference=None))
    figures = {"predicted": [0.6, 0.375], "served": [0.5, 0.3], "num_rounds": 125, "difference": 0.1, "stages": stages}
    where = {**ENVIRONMENT, "command": "foretell probe demo --served here"}
    return {"environment": where, "num_records": 0, "served": {**figures, "first_disagreement": first}}


LOG = (
    "".join(
        json.dumps({"step": step, "loss": 9.0 / step, "loss_0": 2.0, "loss_1": 8.0 / step, "agreement_1": step / 100})
        + "\n"
        for step in (10, 20, 30)
    )
    + '{"step": 30, "train_runtime": 12.5, "train_loss": 0.5}\n'
)


def write(folder: Path, name: str, values: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(values if isinstance(values, str) else json.dumps(values), encoding="utf-8")
    return path


def everything(folder: Path) -> list[Path]:
    """One file of each kind."""
    adapter = {
        "format_version": 1,
        "heads": {"kind": "sequential", "num_depths": 3},
        "trunk": {"name": "Trunk"},
        "training": {"num_steps": 900, "mean_loss": 1.5, "held_out": probe()},
    }
    return [
        write(folder, "bench.json", bench((1, 8), differences=[difference()])),
        write(folder, "compare.json", compare()),
        write(folder, "verify.json", verify()),
        write(folder, "probe.json", probe()),
        write(folder, "adapter/mtp_config.json", adapter),
        write(folder, "run/metrics.jsonl", LOG),
    ]
