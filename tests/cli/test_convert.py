"""convert: a report on the screen and in a file, one line for what is wrong, and nothing half done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def test_there_and_back(run: Any, folders: Path, tmp_path: Path) -> None:
    """Export, decode with it, import, strip, graft: each says what it did to how many tensors."""
    out, report = tmp_path / "out", tmp_path / "report.json"
    ran = run(
        "convert",
        "export",
        folders / "cycle",
        out,
        "--heads",
        folders / "two",
        "--to",
        "deepseek-style",
        "--json",
        report,
    )
    assert ran.code == 0
    assert "12 kept bit for bit" in ran.out and "26 added: heads of two" in ran.out
    assert "checked: loaded again: logits the same bits, states of the heads equal" in ran.out
    assert f"written: {out}" in ran.err
    saved = json.loads(report.read_text())
    assert saved["added"].keys() == json.loads((out / "conversion.json").read_text())["added"].keys()
    assert "model.layers.2.eh_proj.weight" in saved["added"]
    ran = run("generate", out, "abc", "--depth", 2, "--max-tokens", 6)
    assert ran.out == "defghi\n" and "acceptance by depth 1.00 1.00" in ran.err
    assert run("convert", "import", out, tmp_path / "back").code == 0
    assert (tmp_path / "back" / "mtp.safetensors").is_file()
    assert run("convert", "strip", out, tmp_path / "plain").code == 0
    ran = run("convert", "graft", tmp_path / "plain", tmp_path / "again", "--original", out)
    assert ran.code == 0 and "26 added: heads of the original" in ran.out
    ran = run("convert", "fold-norm", folders / "cycle", tmp_path / "pre", "--heads", folders / "right")
    assert ran.code == 0 and "the state's scale after the norm is 1.00, with a spread of 0%" in ran.out


@pytest.mark.parametrize(
    ("line", "code", "problem"),
    [
        ("export {f}/cycle {o} --heads {f}/two", 2, 'requires an argument: "--to"|--to'),
        ("export {f}/cycle {o} --heads {f}/two --to gguf", 2, "gguf"),
        ("export {f}/cycle {o} --heads {f}/two --to mimo", 1, "2 distinct modules, of which the engines serve 1"),
        ("export {f}/nowhere {o} --heads {f}/two --to mimo", 1, "no such file or folder"),
        ("export {f}/cycle {o} --heads {f}/cycle --to mimo", 1, "no mtp_config.json in it"),
        ("export {f}/cycle {f}/cycle --heads {f}/two --to deepseek-style", 1, "is the source"),
        ("export {f}/cycle {o} --heads {f}/two --to deepseek-style --modules 0", 2, "--modules"),
        ("strip {f}/cycle {o}", 1, "no heads in it"),
        ("strip {f}/two {o}", 1, "an adapter, heads without a trunk"),
        ("graft {f}/cycle {o} --original {f}/cycle", 1, "no native heads are in its files"),
        ("import {f}/cycle {o}", 1, "no native heads"),
        ("import {f}/cycle/config.json {o} --trunk {f}/cycle", 1, "not a file of tensors"),
        ("fold-norm {f}/random {o} --heads {f}/right", 1, "another|made for"),
        ("unknown", 2, "unknown"),
    ],
)
def test_what_is_wrong_is_one_line(run: Any, folders: Path, tmp_path: Path, line: str, code: int, problem: str) -> None:
    ran = run("convert", *line.format(f=folders, o=tmp_path / "out").split())
    assert ran.code == code, ran.err
    assert ran.err.splitlines()[-1].startswith("error: ") and any(word in ran.err for word in problem.split("|"))
    assert not (tmp_path / "out").exists()
