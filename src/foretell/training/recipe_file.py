"""Reading a recipe: unknown keys and wrong values are errors that say what is allowed."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from foretell.config import HeadsConfig
from foretell.errors import DataError, ForetellError, UsageError
from foretell.training.recipe import DataConfig, ObjectiveConfig, Recipe, TrainConfig

T = TypeVar("T")

_SECTIONS: dict[str, type] = {
    "heads": HeadsConfig,
    "data": DataConfig,
    "objective": ObjectiveConfig,
    "train": TrainConfig,
}


def load_recipe(path: str | Path) -> Recipe:
    """Read a recipe; raises DataError for a broken file and UsageError for a wrong key or value."""
    path = Path(path)
    if not path.is_file():
        raise DataError("no such file; give the path of a recipe (recipes/ holds examples)", path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"not valid TOML ({error})", path) from error
    for name, section in _SECTIONS.items():
        given = values.get(name, {})
        if not isinstance(given, dict):
            raise UsageError(f"{path}: [{name}] must be a table, got {given!r}")
        if name == "heads":
            _check_heads_table(values, path)
        values[name] = _build(section, given, f"{path}: [{name}]")
    values.setdefault("run_dir", f"runs/{path.stem}")
    recipe = _build(Recipe, values, str(path))
    _check(recipe, path)
    return recipe


def _build(kind: type[T], values: dict[str, Any], where: str) -> T:
    known = {f.name: f.type for f in fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
            raise UsageError(f"{where}: unknown key {name!r}{hint}")
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    types = get_type_hints(kind)
    for name, value in values.items():
        try:
            TypeAdapter(types[name]).validate_python(value, strict=True)
        except ValidationError as error:
            raise UsageError(f"{where}: {name} is {value!r}; allowed: {known[name]}") from error
    try:
        return kind(**values)
    except TypeError as error:
        raise UsageError(f"{where}: {str(error).removeprefix('Recipe.__init__() ')}") from error
    except ForetellError as error:
        raise UsageError(f"{where}: {error}") from error


def _check_heads_table(values: dict[str, Any], path: Path) -> None:
    """Refuse what would be ignored: the adapter of ``init_from`` settles what heads there are."""
    heads, data = values.get("heads", {}), values.get("data", {})
    if "draft_vocab_size" in heads:
        raise UsageError(f"{path}: [heads] draft_vocab_size belongs to [data]; move it there")
    if values.get("init_from"):
        given = ["[heads]"] if heads else []
        given += ["[data] draft_vocab_size"] if isinstance(data, dict) and "draft_vocab_size" in data else []
        if given:
            raise UsageError(
                f"{path}: {' and '.join(given)} given together with init_from, whose adapter settles it; take out one"
            )


def check_weights(objective: ObjectiveConfig, num_depths: int, where: str) -> None:
    """Raise UsageError where ``weights`` are given and are not one a depth."""
    if len(objective.weights) not in (0, num_depths):
        raise UsageError(
            f"{where}: [objective] weights is {objective.weights!r}; allowed: {num_depths} numbers, one a depth"
        )


def _check(recipe: Recipe, path: Path) -> None:
    data, objective, train = recipe.data, recipe.objective, recipe.train

    def need(ok: bool, name: str, value: object, allowed: str) -> None:
        if not ok:
            raise UsageError(f"{path}: {name} is {value!r}; allowed: {allowed}")

    need(bool(data.files or data.texts), "[data] files", data.files, "at least one JSONL file, or texts")
    need(data.max_length >= 8, "[data] max_length", data.max_length, "8 tokens or more")
    need(0 <= data.held_out < 0.5, "[data] held_out", data.held_out, "0 to 0.5")
    if not recipe.init_from:  # else the adapter says how many depths there are, when it is read
        check_weights(objective, recipe.heads.num_depths, str(path))
    need(
        all(w >= 0 for w in objective.weights) and (not objective.weights or sum(objective.weights) > 0),
        "[objective] weights",
        objective.weights,
        "0 or more each, and one above 0",
    )
    need(objective.decay > 0, "[objective] decay", objective.decay, "above 0")
    for name in ("draft_vocab_size", "max_documents", "max_text_tokens"):
        need(getattr(data, name) >= 0, f"[data] {name}", getattr(data, name), "0 or more")
    need(train.learning_rate > 0, "[train] learning_rate", train.learning_rate, "above 0")
    for name in ("batch_rows", "accumulation", "save_steps", "log_steps"):
        need(getattr(train, name) >= 1, f"[train] {name}", getattr(train, name), "1 or more")
    for name in ("weight_decay", "max_grad_norm", "seed"):
        need(getattr(train, name) >= 0, f"[train] {name}", getattr(train, name), "0 or more")
    need(0 <= train.warmup_ratio < 1, "[train] warmup_ratio", train.warmup_ratio, "0 to below 1, a share of the steps")
    need(train.epochs > 0, "[train] epochs", train.epochs, "above 0")
    need(train.max_steps >= 0, "[train] max_steps", train.max_steps, "0 (= epochs decide) or more")
    need(
        recipe.dtype != "bfloat16" or train.precision != "float32",
        "[train] precision",
        train.precision,
        'bfloat16 or auto, where dtype is "bfloat16"',
    )
