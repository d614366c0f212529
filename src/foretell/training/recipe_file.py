"""Reading a recipe: unknown keys and wrong values are errors that say what is allowed."""

from __future__ import annotations

import copy
import difflib
import re
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from foretell.checkpoints.adapter_config import is_adapter
from foretell.errors import DataError, ForetellError, UsageError
from foretell.training.place import Place
from foretell.training.recipe import SECTIONS, Recipe
from foretell.training.recipe_checks import check

T = TypeVar("T")

_OPTIONAL = ("model", "tokenizer")
"""Tables that stay None where they are left out; they are read behind the others."""


def load_recipe(path: str | Path) -> Recipe:
    """Read a recipe; raises DataError for a broken file and UsageError, with the line, for a wrong key or value."""
    path = Path(path)
    if not path.is_file():
        raise DataError("no such file; give the path of a recipe (recipes/ holds examples)", path)
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"not valid TOML ({error})", path) from error
    place = Place(path, text, copy.deepcopy(values))
    for name, section in sorted(SECTIONS.items(), key=lambda item: item[0] in _OPTIONAL):
        given = values.get(name, None if name in _OPTIONAL else {})
        if given is None:
            continue
        if not isinstance(given, dict):
            raise UsageError(f"{place.of(name)}: [{name}] must be a table, got {given!r}")
        if name == "heads":
            _check_heads_table(values, place)
            if given.get("kind") == "none":
                values[name] = None
                continue
            if not given and _brings_heads(values):
                values["init_from"] = values["trunk"]
        if name == "model":  # everything but the preset is the family's own
            given = {"preset": given.pop("preset", ""), "config": given}
        values[name] = _build(section, given, place, name)
    values.setdefault("run_dir", f"runs/{path.stem}")
    recipe = _build(Recipe, values, place)
    check(recipe, place)
    if recipe.model is not None:
        from foretell.training.scratch import check_model  # slow to import, and seldom needed

        check_model(recipe.model, place)
    return recipe


def _build(kind: type[T], values: dict[str, Any], place: Place, section: str = "") -> T:
    known = {f.name: f.type for f in fields(kind)}  # type: ignore[arg-type]
    table = f" [{section}]" if section else ""
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
            raise UsageError(f"{place.of(section, name)}:{table} unknown key {name!r}{hint}")
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    types = get_type_hints(kind)
    for name, value in values.items():
        try:
            TypeAdapter(types[name]).validate_python(value, strict=True)
        except ValidationError as error:
            allowed = _allowed(section, name, str(known[name]))
            raise UsageError(f"{place.of(section, name)}:{table} {name} is {value!r}; allowed: {allowed}") from error
    lacking = [
        f.name
        for f in fields(kind)  # type: ignore[arg-type]
        if f.default is MISSING and f.default_factory is MISSING and f.name not in values
    ]
    if lacking:
        raise UsageError(f"{place.of(section)}:{table} {', '.join(lacking)} missing; give a value")
    try:
        return kind(**values)
    except ForetellError as error:
        raise UsageError(f"{place.of(section)}:{table} {str(error).removeprefix('heads: ')}") from error


def _allowed(section: str, key: str, kind: str) -> str:
    """A field's type in words."""
    if (section, key) == ("heads", "kind"):
        kind = kind.replace("]", ", 'none']")
    words = {
        "tuple[str, ...]": "a list of strings",
        "tuple[float, ...]": "a list of numbers",
        "tuple[Boundary, ...]": "a list of 'trunk', 'embedding', 'output'",
    }
    return words.get(kind, re.sub(r"Literal\[([^\]]*)\]", r"\1", kind))


def _brings_heads(values: dict[str, Any]) -> bool:
    """True where the trunk is a folder of ours with heads in it, and the recipe says nothing of heads."""
    trunk = values.get("trunk")
    return isinstance(trunk, str) and bool(trunk) and not values.get("init_from") and is_adapter(trunk)


def _check_heads_table(values: dict[str, Any], place: Place) -> None:
    """Refuse what would be ignored: the adapter of ``init_from`` settles what heads there are."""
    heads, data = values.get("heads", {}), values.get("data", {})
    if "draft_vocab_size" in heads:
        raise UsageError(
            f"{place.of('heads', 'draft_vocab_size')}: [heads] draft_vocab_size belongs to [data]; move it there"
        )
    if "extra" in heads:
        raise UsageError(f"{place.of('heads', 'extra')}: [heads] extra is what Foretell notes down itself; take it out")
    if heads.get("kind") == "none" and len(heads) > 1:
        raise UsageError(f'{place.of("heads")}: [heads] kind = "none" leaves nothing to set; take out the other keys')
    if values.get("init_from"):
        given = ["[heads]"] if heads else []
        given += ["[data] draft_vocab_size"] if isinstance(data, dict) and "draft_vocab_size" in data else []
        if given:
            raise UsageError(
                f"{place.of('', 'init_from')}: {' and '.join(given)} given together with init_from, whose adapter "
                "settles it; take out one"
            )
