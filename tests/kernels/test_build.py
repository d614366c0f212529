"""Kernels are built once, or not at all with a word about it; decoding goes on without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from foretell.kernels import build

PROGRAM = """
import torch, warnings
from foretell.models.packed import packed
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    kind = type(packed(torch.nn.Linear(8, 8))).__name__
print(kind, *[warning.message for warning in caught if "kernels" in str(warning.message)], sep="|")
"""


def run(cache: Path, **variables: str) -> list[str]:
    env = {**os.environ, "FORETELL_CACHE": str(cache), **variables}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip().split("|")


@pytest.mark.skipif(build.library() is None, reason="no C++ compiler")
def test_built_once(tmp_path: Path) -> None:
    assert run(tmp_path) == ["KernelLinear"]
    [built] = (tmp_path / "kernels").iterdir()
    when = built.stat().st_mtime_ns
    assert run(tmp_path) == ["KernelLinear"] and built.stat().st_mtime_ns == when


def test_left_out(tmp_path: Path) -> None:
    assert run(tmp_path, FORETELL_KERNELS="0") == ["OneDNNLinear"]
    assert not (tmp_path / "kernels").exists()


def test_no_compiler(tmp_path: Path) -> None:
    kind, told = run(tmp_path, CXX="no-such-compiler")
    assert kind == "OneDNNLinear" and "no C++ compiler (no-such-compiler is not found)" in told


def test_a_compiler_that_fails(tmp_path: Path) -> None:
    fake = tmp_path / "c++"
    fake.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\necho "disk is full" >&2\nexit 1\n')
    fake.chmod(0o755)
    kind, told = run(tmp_path, CXX=str(fake))
    assert kind == "OneDNNLinear" and "disk is full" in told
    assert list((tmp_path / "kernels").iterdir()) == []
