"""The cache of trunk states never hands out what was not computed, and has one user at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from foretell.errors import UsageError
from foretell.models.trunk import Trunk
from foretell.training import states
from foretell.training.documents import Document
from foretell.training.packing import PackedRows, pack
from foretell.training.states import StateCache, room_for
from tests.fixtures import tiny_llama

ROWS: PackedRows = pack([Document(list(range(n, n + 8)), [True] * 8) for n in range(5)], 8)


@pytest.fixture(scope="module")
def trunk() -> Iterator[Trunk]:
    yield Trunk(tiny_llama())


def fill(folder: Path, trunk: Trunk) -> tuple[int, torch.Tensor, torch.Tensor]:
    """(batches computed, states, argmax)"""
    steps: list[int] = []
    with closing(StateCache(folder, trunk, ROWS)) as cache:
        cache.fill(batch_rows=2, on_progress=lambda done, total: steps.append(done))
        return len(steps), cache.states_RTD.clone(), cache.argmax_RT.clone()


@pytest.mark.parametrize("name", ["states.bin", "argmax.bin", "states.json"])
@pytest.mark.parametrize("damage", ["missing", "cut", "empty"])
def test_a_damaged_cache_is_computed_again(trunk: Trunk, tmp_path: Path, name: str, damage: str) -> None:
    num_batches, expected, argmax = fill(tmp_path, trunk)
    assert num_batches == 3 and fill(tmp_path, trunk)[0] == 0
    path = tmp_path / name
    if damage == "missing":
        path.unlink()
    else:
        os.truncate(path, path.stat().st_size // 2 if damage == "cut" else 0)
    again = fill(tmp_path, trunk)
    assert again[0] == 3
    assert torch.equal(again[1], expected) and torch.equal(again[2], argmax)
    assert expected.abs().sum(-1).min() > 0


def test_a_killed_cache_goes_on_where_it_stopped(trunk: Trunk, tmp_path: Path) -> None:
    _, expected, _ = fill(tmp_path / "whole", trunk)

    def kill(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with closing(StateCache(tmp_path, trunk, ROWS)) as cache, pytest.raises(KeyboardInterrupt):
        cache.fill(batch_rows=2, on_progress=kill)
    num_batches, found, _ = fill(tmp_path, trunk)
    assert num_batches == 2 and torch.equal(found, expected)
    assert not list(tmp_path.glob("*.partial"))


def test_one_process_at_a_time(trunk: Trunk, tmp_path: Path) -> None:
    """A second one would throw away, or write over, what the first is reading."""
    _, expected, _ = fill(tmp_path, trunk)
    code = (
        "import fcntl, sys; lock = open(sys.argv[1], 'w'); fcntl.flock(lock, fcntl.LOCK_EX); "
        "print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout and other.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match="another process is using these cached states"):
            StateCache(tmp_path, trunk, pack([Document([1, 2, 3], [True] * 3)], 8))
        other.communicate("\n")
    with closing(StateCache(tmp_path, trunk, ROWS)), pytest.raises(UsageError, match="another process"):
        StateCache(tmp_path, trunk, ROWS)
    assert torch.equal(fill(tmp_path, trunk)[1], expected)


def test_room_counts_what_is_there_already(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "states.bin").write_bytes(bytes(range(256)) * 256)  # 64 KiB
    for free, reserve, fits in ((60_000, False, True), (60_000, True, False), (10_000, False, False)):
        usage = SimpleNamespace(free=free, total=1 << 40)
        monkeypatch.setattr(states.shutil, "disk_usage", lambda path, usage=usage: usage)
        assert room_for(tmp_path, 100_000, reserve) == fits


def test_the_trunk_computes_on_its_own_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trunk: Any = SimpleNamespace(
        fingerprint=lambda: "x", dtype=torch.float32, hidden_size=4, device=torch.device("meta"), modules=lambda: []
    )

    def outputs(trunk: Any, token_ids_BT: torch.Tensor, doc_ids_BT: torch.Tensor) -> Any:
        assert token_ids_BT.is_meta and doc_ids_BT.is_meta
        return SimpleNamespace(pre_BTD=torch.ones(*token_ids_BT.shape, 4)), torch.ones(token_ids_BT.shape)

    monkeypatch.setattr(states, "trunk_outputs", outputs)
    num_batches, found, argmax = fill(tmp_path, trunk)
    assert num_batches == 3 and (found == 1).all() and (argmax == 1).all()
