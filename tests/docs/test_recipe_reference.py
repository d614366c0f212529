"""docs/reference/recipe.md is what the settings are now."""

from __future__ import annotations

import importlib.util

from tests.docs.conftest import ROOT


def test_the_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("build_recipe_reference", ROOT / "docs" / "build_recipe_reference.py")
    assert spec is not None and spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    written = builder.TARGET.read_text(encoding="utf-8")
    assert written == builder.page(), "run: python docs/build_recipe_reference.py"
    assert "| `gradient_share_steps` | `0` | whole number |" in written
