"""What the experiments share: variants of a recipe, trained once, and figures of decoding on held-out prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import foretell
from foretell.checkpoints.files import read_json
from foretell.training.recipe import Recipe
from foretell.training.recipe_file import load_recipe
from foretell.training.trainer import train

HERE = Path(__file__).parent
RUNS = Path("runs/experiments")


def variant(recipe: str, name: str, **sections: dict[str, Any] | None) -> Recipe:
    """The recipe with settings changed, ``train={"seed": 1}`` for example, and an output of its own; None drops one."""
    changed = load_recipe(HERE / recipe)
    for section, settings in sections.items():
        current = getattr(changed, section)
        value = replace(current, **settings) if isinstance(settings, dict) else settings
        changed = replace(changed, **{section: value})
    return replace(changed, output=str(RUNS / name), run_dir=str(RUNS / f"{name}-run"))


def trained(recipe: Recipe) -> dict[str, Any]:
    """Train, or take the report of the same run made before (delete ``runs/experiments`` to begin anew)."""
    path, settings = Path(recipe.run_dir) / "report.json", json.loads(json.dumps(asdict(recipe)))
    if path.is_file() and (stored := read_json(path))["recipe"] == settings:
        return stored["report"]
    report = train(recipe, overwrite=True, on_progress=lambda stage, *_: print(f"{recipe.output}: {stage}", flush=True))
    path.write_text(json.dumps({"recipe": settings, "report": report.as_dict()}) + "\n")
    return report.as_dict()


def served(model: Any, prompts: Sequence[Any], depth: int, max_tokens: int = 64) -> dict[str, Any]:
    """Greedy decoding of the prompts: acceptance per depth, tokens per pass, texts unlike depth 0."""
    params = foretell.SamplingParams(max_tokens=max_tokens)
    engine = foretell.Engine(model, 50)
    plain = engine.generate(list(prompts), params, depth=0)
    done = engine.generate(list(prompts), params, depth=depth)
    differ = sum(a.token_ids != b.token_ids for a, b in zip(plain, done, strict=True))
    total = done[0].stats
    for completion in done[1:]:
        total.add(completion.stats)
    return {
        "depth": depth,
        "acceptance_by_depth": total.acceptance_by_depth,
        "conditional_acceptance_by_depth": total.conditional_acceptance_by_depth,
        "mean_acceptance_length": total.mean_acceptance_length,
        "num_texts": len(plain),
        "num_texts_unlike_depth_0": differ,
        "texts": [completion.text for completion in plain],
    }


def write(name: str, results: Any) -> None:
    """Keep the figures in ``docs/experiments/NAME.json``."""
    path = HERE.parent / "docs" / "experiments" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")


def show(rows: list[dict[str, Any]]) -> None:
    """A Markdown table."""
    names = list(rows[0])
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(_text(row[name]) for name in names) + " |")


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(_text(v) for v in value)
    return "n/a" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
