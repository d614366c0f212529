"""The record of where a measurement was made."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch

from foretell.analysis import environment as module
from foretell.analysis.environment import commit, environment


def test_the_commit_is_gits() -> None:
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        assert commit() is None
        return
    line = ["git", "-C", str(root), "rev-parse", "HEAD"]
    head = subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()
    found = commit()
    assert found is not None and re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", found)
    assert head.startswith(found.removesuffix("-dirty"))
    assert environment(torch.float32, "x")["commit"] == found


def test_outside_a_checkout_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "__file__", str(tmp_path / "a" / "b" / "c" / "d.py"))
    assert commit() is None
    (tmp_path / ".git").mkdir()  # no repository that git can read
    assert commit() is None
