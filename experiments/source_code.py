"""Next-token, parallel and sequential training on source code, at equal tokens and at equal compute.

    python experiments/source_code.py

Bits per byte of held-out files, acceptance per depth (read off text, and served), and the share of greedily written
function bodies that Python can parse.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from common import RUNS, served, show, trained, variant, write

import foretell
from foretell.checkpoints.files import read_json
from foretell.config import HeadsConfig
from foretell.training.held_out import set_apart_by
from foretell.training.recipe import ObjectiveConfig
from foretell.training.sources import text_records
from foretell.training.training_model import TrainingModel

KINDS = {
    "ntp": None,
    "parallel": HeadsConfig(kind="parallel", num_depths=3, hidden_source="below"),
    "sequential": HeadsConfig(kind="sequential", num_depths=3),
}
NUM_PROMPTS = 100


def main() -> None:
    """Train every kind under every seed, then plain training for as long as sequential took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--name", default="source_code", help="of the JSON file under docs/experiments")
    options = parser.parse_args()
    runs: list[dict[str, Any]] = []
    costs: dict[str, float] = {}
    for seed in options.seeds:
        reports = {}
        for kind, heads in KINDS.items():
            recipe = variant("source_code.toml", f"code-{kind}-{seed}", heads=heads, train={"seed": seed})
            reports[kind] = trained(recipe)
            runs.append(figures(kind, seed, recipe.train.max_steps, reports[kind]))
        costs = costs or step_costs({kind: report["output"] for kind, report in reports.items()})
        steps = round(recipe.train.max_steps * costs["sequential"])
        longer = variant(
            "source_code.toml", f"code-longer-{seed}", heads=None, train={"seed": seed, "max_steps": steps}
        )
        runs.append(figures("ntp, compute of sequential", seed, steps, trained(longer)))
        write(options.name, {"step_costs": costs, "runs": runs})
    print("a step's time over that of plain training:", costs)
    show([{k: v for k, v in run.items() if k != "texts"} for run in runs])


def step_costs(folders: dict[str, str]) -> dict[str, float]:
    """Time of a forward and backward pass over that of plain training: medians of passes taken in turn, measured once.

    The optimizer's step is left out; it is a few percent of each.
    """
    kept = RUNS / "step-costs.json"
    if kept.is_file():
        return read_json(kept)
    models = {}
    for kind, folder in folders.items():
        loaded = foretell.load(folder, pack=False)
        models[kind] = TrainingModel(loaded.trunk, loaded.heads, ObjectiveConfig(), train_trunk=True)
        models[kind].requires_grad_(True).train()
    token_ids = torch.randint(0, 1000, (16, 128), generator=torch.Generator().manual_seed(0))
    batch = (token_ids, torch.zeros_like(token_ids), torch.ones_like(token_ids, dtype=torch.bool))
    times: dict[str, list[float]] = {kind: [] for kind in models}
    for _ in range(16):
        for kind, model in models.items():
            started = time.perf_counter()
            model(*batch)["loss"].backward()
            times[kind].append(time.perf_counter() - started)
    plain = statistics.median(times["ntp"])
    costs = {kind: round(statistics.median(values) / plain, 2) for kind, values in times.items()}
    kept.write_text(json.dumps(costs))
    return costs


def figures(kind: str, seed: int, steps: int, report: dict[str, Any]) -> dict[str, Any]:
    """One row of the table."""
    model = foretell.load(report["output"])
    prompts = function_heads()
    depth = 0 if model.heads is None else 3
    decoded = served(model, prompts, depth)
    held_out = report["held_out"]
    return {
        "kind": kind,
        "seed": seed,
        "steps": steps,
        "train_s": round(report["train_s"]),
        "bits_per_byte": held_out["bits_per_byte"],
        "served": decoded["acceptance_by_depth"],
        "tokens_per_pass": decoded["mean_acceptance_length"] or 1.0,
        "parses": sum(map(parses, prompts, decoded["texts"])) / len(prompts),
        "differ": decoded["num_texts_unlike_depth_0"],
    }


def function_heads() -> list[str]:
    """The text of held-out files up to the colon of a ``def``, 200 characters at most; evenly spread over them.

    Not up to the end of the line: the tokens that follow a colon hold line end and indentation together.
    """
    from foretell.training.recipe_file import load_recipe

    held_out: list[Any] = []
    config = load_recipe(Path(__file__).with_name("source_code.toml")).data
    for _ in set_apart_by(config, text_records(config), held_out):
        pass
    found = []
    for record in held_out:
        text = record.values["text"]
        found += [text[max(0, m.end() - 200) : m.end()] for m in re.finditer(r"\n *def \w+\([^\n]*\):(?=\n)", text)]
    return found[:: max(1, len(found) // NUM_PROMPTS)][:NUM_PROMPTS]


def parses(prompt: str, text: str) -> bool:
    """The function that ``text`` goes on with, without its unfinished last line, is Python."""
    indent, head = re.findall(r"( *)(def \w+\([^\n]*\):)\Z", prompt)[0]
    first, *rest = text.split("\n")[:-1] or [""]
    lines = [head + first]
    for line in rest:
        if line.strip() and not line.startswith(indent + " "):
            break  # the function is over
        lines.append(line[len(indent) :])
    try:
        ast.parse("\n".join(lines))
    except (SyntaxError, ValueError):
        return False
    return True


if __name__ == "__main__":
    main()
