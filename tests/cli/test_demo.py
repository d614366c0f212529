from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest


def test_demo_on_a_tiny_model(
    run: Any, folders: Path, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["foretell", "demo"])  # a worker of pytest's has no arguments
    out = tmp_path / "demo.json"
    line = ("demo", "--model", folders / "cycle", "--heads", folders / "right", "--prompts", prompts)
    ran = run(*line, "--max-tokens", 9, "--dtype", "float32", "--json", out)
    assert ran.code == 0
    assert "Prompt (letters): a\n" in ran.out
    assert "b‹" in ran.out.replace("\n", "")
    assert "tokens (in ‹ ›) were guessed by the heads and confirmed by the model" in ran.out
    assert "Text unchanged: yes (2 of 2 prompts, 18 tokens)" in ran.out
    assert "as fast" in ran.out or "SLOWER here" in ran.out
    assert "foretell generate" in ran.out and "foretell verify" in ran.out and "foretell bench" in ran.out
    data = json.loads(out.read_text())
    assert {r["depth"] for r in data["runs"]} >= {0} and data["environment"]["command"].startswith("foretell ")


def test_a_given_depth_is_not_searched(run: Any, folders: Path, prompts: Path) -> None:
    line = ("demo", "--model", folders / "cycle", "--heads", folders / "right", "--prompts", prompts)
    ran = run(*line, "--max-tokens", 9, "--depth", 2, "--num-prompts", 1)
    assert ran.code == 0 and "trying depths" not in ran.err and "plain and depth 2, in turns" in ran.err
    assert "bcdefghij" in ran.out.replace("‹", "").replace("›", "")


def test_depth_auto(run: Any, folders: Path, prompts: Path) -> None:
    line = ("demo", "--model", folders / "cycle", "--heads", folders / "right", "--prompts", prompts)
    ran = run(*line, "--max-tokens", 20, "--depth", "auto", "--num-prompts", 1)
    assert ran.code == 0 and "plain and depth auto, in turns" in ran.err and "Text unchanged: yes" in ran.out
    assert "--depth auto" in ran.out and "depth auto tok/s" in ran.out
    ran = run(*line, "--depth", 0)
    assert ran.code == 2 and '--depth: "0"' in ran.err and ">= 1" in ran.err


def test_a_missing_adapter_is_named(run: Any, monkeypatch: pytest.MonkeyPatch, prompts: Path) -> None:
    monkeypatch.setattr("foretell.cli.demo.DEMO_ADAPTER", "adapters/none")
    ran = run("demo", "--prompts", prompts)
    assert ran.code == 2 and "adapters/none" in ran.err
