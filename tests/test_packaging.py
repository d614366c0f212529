"""What pyproject.toml promises: a source distribution that can test itself, and no dependency that nothing needs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NOT_IMPORTED = {"accelerate", "tokenizers"}  # transformers needs them: its Trainer and GGUF reader, its tokenizers


def test_the_source_distribution_holds_what_tests_read() -> None:
    held = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    read = {"src", "tests", "docs", "prompts", "recipes", "adapters", "CONTRIBUTING.md", "README.md", "Makefile"}
    assert read <= {name.removeprefix("/") for name in held}


def test_every_dependency_is_imported_and_pinned() -> None:
    names = [re.match(r"[\w-]+", line)[0] for line in PROJECT["project"]["dependencies"]]  # type: ignore[index]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for name in names:
        assert name in NOT_IMPORTED or re.search(rf"^\s*(import|from) {name}\b", sources, re.MULTILINE), name
        assert re.search(rf"^{name}==", pins, re.MULTILINE), name
