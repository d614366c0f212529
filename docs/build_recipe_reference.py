"""Writes docs/reference/recipe.md: every key of a recipe, its type and default, and what the code says of it."""

from __future__ import annotations

import re
from dataclasses import MISSING, Field, fields
from inspect import cleandoc
from pathlib import Path

from foretell.training.recipe import SECTIONS, Recipe

TARGET = Path(__file__).parent / "reference" / "recipe.md"
ELSEWHERE = {"": set(SECTIONS), "heads": {"draft_vocab_size", "extra"}, "model": {"config"}}
"""Fields that are no keys of that table."""
HEADER = """\
# Recipe

Every key that `foretell train RECIPE.toml` reads. This page is generated from `src/foretell/training/recipe.py` and
`src/foretell/config.py`: change the text there, then run `python docs/build_recipe_reference.py`.
"""


def page() -> str:
    """The whole page."""
    return HEADER + "".join(section(name, kind) for name, kind in [("", Recipe), *SECTIONS.items()])


def section(name: str, kind: type) -> str:
    """One table: what its docstring says, then its keys."""
    rows = "".join(row(f) for f in fields(kind) if f.name not in ELSEWHERE.get(name, set()))
    title = f"[{name}]" if name else "Top of the file"
    text = cleandoc(kind.__doc__ or "").replace("``", "`")
    extra = "| any other | | key of the family's transformers config |\n" if name == "model" else ""
    return f"\n## {title}\n\n{text}\n\n| key | default | allowed |\n|---|---|---|\n{rows}{extra}"


def row(field: Field) -> str:  # type: ignore[type-arg]
    """One key."""
    if field.default is not MISSING:
        default = f"`{toml(field.default)}`"
    else:
        default = "needed" if field.default_factory is MISSING else ""
    default = {"run_dir": "`runs/` and the recipe's name"}.get(field.name, default)
    return f"| `{field.name}` | {default} | {allowed(str(field.type))} |\n"


def toml(value: object) -> str:
    """A default as a recipe would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml, value))}]"
    return "left out" if value is None else str(value)


def allowed(kind: str) -> str:
    """A type in words."""
    for old, new in (
        (r"Target", '"argmax", "distribution", "data"'),
        (r"LossName", '"ce", "kl", "soft_ce", "reverse_kl", "tv"'),
        (r"tuple\[Boundary, \.\.\.\]", 'list of "trunk", "embedding", "output"'),
        (r"Literal\[([^\]]*)\]", r"\1"),
        (r"tuple\[str, \.\.\.\]", "list of strings"),
        (r"tuple\[float, \.\.\.\]", "list of numbers"),
        (r"\bstr\b", "string"),
        (r"\bint\b", "whole number"),
        (r"\bfloat\b", "number"),
        (r"\bbool\b", "true, false"),
        (r" \| None", ""),
        (r" \| ", ", "),
        (r"'", '"'),
    ):
        kind = re.sub(old, new, kind)
    return kind


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
