"""docs/architecture.md names what exists, names every package, and stays one page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.docs.conftest import ROOT

PAGE = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src" / "foretell"
PACKAGES = sorted(folder.name for folder in SOURCE.iterdir() if (folder / "__init__.py").exists())
TOP = sorted(file.stem for file in SOURCE.glob("[a-z]*.py"))
MAX_LINES = 80


def layer_block(text: str) -> Iterator[tuple[str, list[str]]]:
    """(package or top-level module, modules): a column of names with commas; items of several words are remarks."""
    block = text.split("## Layers", 1)[1].split("\n## ", 1)[0]
    for line in re.findall(r"^    (\w.*)$", block, re.MULTILINE):
        columns = re.split(r" {2,}", line)
        if len(columns) == 1:
            yield from ((name, []) for name in line.split(", "))
        for package, names in zip(columns[::2], columns[1::2], strict=False):
            yield package, [name for name in names.split(", ") if re.fullmatch(r"\w+", name)]


def missing(text: str) -> list[str]:
    """What the page names and src does not have."""
    lost = []
    for package, modules in layer_block(text):
        if package not in PACKAGES + TOP:
            lost.append(package)
        lost += [f"{package}/{name}" for name in modules if not (SOURCE / package / f"{name}.py").exists()]
    known = names_in_source()
    for code in re.findall(r"`([^`\n]+)`", text):
        if re.fullmatch(r"\w+(/\w+)+", code):
            lost += [] if (SOURCE / f"{code}.py").exists() else [code]
        elif re.fullmatch(r"[A-Za-z_]+(\.\w+)*", code):
            lost += [code for part in code.split(".") if part not in known][:1]
    return lost


def names_in_source() -> set[str]:
    """Packages, modules, and the classes, functions and fields that they define."""
    names = {"foretell", *PACKAGES}
    for file in SOURCE.rglob("*.py"):
        names.add(file.stem)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
    return names


def test_what_the_page_names_exists() -> None:
    assert missing(PAGE.read_text(encoding="utf-8")) == []


def test_every_package_is_on_the_page() -> None:
    layers = {package for package, _ in layer_block(PAGE.read_text(encoding="utf-8"))}
    assert [name for name in PACKAGES + [name for name in TOP if name != "__init__"] if name not in layers] == []


def test_it_is_one_page() -> None:
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ("    models       trunk,", "    models       trunk, branch,", "models/branch"),
        ("    cli  ", "    gui  ", "gui"),
        ("`decoding/cache`", "`decoding/cash`", "decoding/cash"),
        ("`verify_greedy`", "`verify_greed`", "verify_greed"),
        ("`targets.valid_mask`", "`targets.valid_masks`", "targets.valid_masks"),
    ],
)
def test_a_name_that_is_gone_is_found(old: str, new: str, lost: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert old in text
    assert lost in missing(text.replace(old, new, 1))
