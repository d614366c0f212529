"""docs/reference/cli.md is what the commands' help says now."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from tests.docs.conftest import ROOT


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_cli_reference", ROOT / "docs" / "build_cli_reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(builder: ModuleType) -> None:
    written = builder.TARGET.read_text(encoding="utf-8")
    assert written == builder.page(), "run: python docs/build_cli_reference.py"


def test_the_page_is_plain_and_the_same_on_any_terminal(builder: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before = builder.page()
    for name, value in (("COLUMNS", "40"), ("FORCE_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
    assert builder.page() == before and "\x1b" not in before
    assert [line for line in before.splitlines() if len(line) > 104] == []
    assert all(f"## foretell {name}\n" in before for name in builder.command_names())
