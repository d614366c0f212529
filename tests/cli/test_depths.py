"""Depth beyond what heads were trained to: one line on standard error, by one rule in every command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretell.checkpoints.load import load_trunk
from foretell.cli.depths import trained_depth, warn_beyond_training
from foretell.config import HeadsConfig
from foretell.decoding.drafter_config import DrafterConfig
from foretell.models.build import build_heads
from foretell.models.mtp_model import MTPModel

DEEP = "warning: depth 5 is asked for, and heads were trained to 3"
SHORT = ("--dtype", "float32", "--max-tokens", 8)


@pytest.fixture(scope="module")
def bare(folders: Path) -> MTPModel:
    return MTPModel(load_trunk(folders / "cycle"))


def with_heads(bare: MTPModel, **config: Any) -> MTPModel:
    return MTPModel(bare.trunk, build_heads(bare.trunk, HeadsConfig(**config)))


def test_the_depth_that_heads_were_trained_to(bare: MTPModel) -> None:
    one, distinct = with_heads(bare, num_depths=2), with_heads(bare, num_modules=2, num_depths=2)
    medusa = with_heads(bare, kind="medusa", num_depths=2)
    assert trained_depth(bare, None) is None and trained_depth(one, None) == 2
    assert trained_depth(distinct, None) is trained_depth(medusa, None) is None  # they end there
    assert trained_depth(one, DrafterConfig("ngram")) is None
    assert trained_depth(one, DrafterConfig("ngram+heads")) == 2
    assert trained_depth(distinct, DrafterConfig("ngram+heads")) is None
    assert trained_depth(one, DrafterConfig("model", bare)) is None  # its own heads stay unused
    for kind in ("model", "ngram+model"):  # a guess of the draft model's own, and its heads' behind it
        assert trained_depth(bare, DrafterConfig(kind, one)) == 3  # type: ignore[arg-type]


def test_one_line_names_the_shallow_ones(bare: MTPModel, capsys: pytest.CaptureFixture[str]) -> None:
    two, three = with_heads(bare, num_depths=2), with_heads(bare, num_depths=3)
    all_of_them = [("a", two, None), ("b", three, None), ("c", two, DrafterConfig("ngram+heads")), ("d", bare, None)]
    assert warn_beyond_training(all_of_them, [0, 2, "auto"]) == [] and capsys.readouterr().err == ""
    [line] = warn_beyond_training(all_of_them, [1, 3])
    assert line.startswith("depth 3 is asked for, and heads were trained to 2 (a, c); deeper guesses")
    assert capsys.readouterr().err == f"warning: {line}\n"
    assert "trained to 2 (a, c), 3 (b);" in warn_beyond_training(all_of_them, [4])[0]
    assert warn_beyond_training(all_of_them, []) == []


@pytest.mark.parametrize("drafter", [(), ("--drafter", "ngram+heads")])
def test_generate(run: Any, folders: Path, drafter: tuple[str, ...]) -> None:
    line = ("generate", folders / "cycle", "a", "--heads", folders / "right", *drafter, *SHORT, "--depth")
    assert run(*line, 5).err.count(DEEP) == 1
    assert "trained to 3;" not in run(*line, 3).err and "trained to 3;" not in run(*line, "auto").err


def test_bench(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    """Depths by default are none that anybody asked for; a tree of five nodes has a chain of depth 5 beside it."""
    out = tmp_path / "out.json"
    line = ("bench", folders / "cycle", "--heads", folders / "right", "--prompts", prompts, *SHORT)
    line = (*line, "--num-prompts", 1, "--repeats", 1, "--json", out)
    for deep in (("--depths", "0,5"), ("--depths", "2", "--nodes", "5")):
        ran = run(*line, *deep)
        assert ran.code == 0 and ran.err.count(DEEP) == 1
        assert DEEP.removeprefix("warning: ") in " ".join(json.loads(out.read_text())["warnings"])
    for flat in ((), ("--depths", "3")):
        assert "trained to 3;" not in run(*line, *flat).err


def test_compare(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    """Sequential heads, alone and behind look-up, chains and trees, in one line; look-up was trained to nothing."""
    out = tmp_path / "out.json"
    line = ("compare", folders / "cycle", "--heads", folders / "right", "--prompts", prompts, *SHORT)
    ran = run(*line, "--num-prompts", 1, "--depths", "5", "--nodes", "6", "--json", out)
    assert ran.code == 0 and ran.err.count("warning: depth 5") == 1
    assert f"{DEEP} (sequential, ngram+sequential); deeper" in ran.err
    assert json.loads(out.read_text())["warnings"][0].startswith("depth 5 is asked for")
    assert "trained to 3 (" not in run(*line, "--num-prompts", 1, "--depths", "3").err


def test_eval(run: Any, folders: Path, prompts: Path) -> None:
    asked = ("--parse", "json", "--prompts", prompts, "--max-tokens", 4, "--depth")
    line = ("eval", folders / "cycle", "--heads", folders / "right", *asked)
    assert run(*line, 5).err.count(DEEP) == 1 and "trained to 3;" not in run(*line, 3).err
