"""Recipes, and the parts of recipes that guides show, load; prompt files named in their comments exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from foretell.training.recipe_file import load_recipe
from tests.docs.conftest import ROOT
from tests.docs.snippets import Snippet, snippets

RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
SHOWN = [
    (page, snippet)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md")))
    if page.exists()
    for snippet in snippets(page)
    if snippet.kind == "toml"
]


def test_there_are_recipes() -> None:
    assert RECIPES and SHOWN


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_loads_and_its_prompts_exist(path: Path) -> None:
    recipe = load_recipe(path)
    comments = "".join(re.findall(r"^#.*\n", path.read_text(encoding="utf-8"), re.MULTILINE))
    named = re.findall(r"\b(?:prompts|recipes|docs)/[\w./-]*\w", comments)
    reads_files = bool(recipe.data.files)
    assert not reads_files or any(name.startswith("prompts/") for name in named), (
        "no comment names the prompts that the data comes from"
    )
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(("page", "snippet"), SHOWN, ids=lambda value: getattr(value, "stem", ""))
def test_a_recipe_that_a_guide_shows_loads(page: Path, snippet: Snippet, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(snippet.text, encoding="utf-8")
    load_recipe(recipe)
