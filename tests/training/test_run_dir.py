"""Whether a run is the one begun: what its recipe.json says, and what it cannot say yet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretell.config import HeadsConfig
from foretell.errors import UsageError
from foretell.training.recipe import Recipe
from foretell.training.run_dir import begin, describe, go_on

NEWER = ("[heads] mlp_layer", "[heads] output_per_module", "[heads] extra", "[train] clip")


def described(heads: HeadsConfig | None, **kwargs: Any) -> dict[str, Any]:
    """A run on a trunk and rows that stay the same."""
    return describe(Recipe(output="out", run_dir="run", heads=heads, **kwargs), "trunk", "rows")


def test_a_setting_newer_than_the_run_had_its_default(tmp_path: Path) -> None:
    """A run begun before a key existed goes on, unless the recipe now gives it."""
    begin(tmp_path, described(HeadsConfig()))
    begun = json.loads((tmp_path / "recipe.json").read_text())
    assert all(begun.pop(name, None) is not None for name in NEWER)
    (tmp_path / "recipe.json").write_text(json.dumps(begun))
    go_on(tmp_path, described(HeadsConfig()), 0)
    with pytest.raises(UsageError, match=r"another recipe: \[heads\] mlp_layer 0 \(was -1\); change"):
        go_on(tmp_path, described(HeadsConfig(mlp_layer=0)), 0)


def test_heads_where_there_were_none_are_another_run(tmp_path: Path) -> None:
    begin(tmp_path, described(None))
    with pytest.raises(UsageError, match=r"\[heads\] kind 'sequential' \(was None\)"):
        go_on(tmp_path, described(HeadsConfig()), 0)
