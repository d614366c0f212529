from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from foretell.checkpoints.adapter import save_adapter
from foretell.cli.main import main
from foretell.models.trunk import Trunk
from tests import fixtures

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
CHAT_TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


class Ran(NamedTuple):
    """A finished command line."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run one command line in this process."""
    # Where a test suite sets a wide terminal, or none, tables must look the same.
    monkeypatch.setenv("COLUMNS", "200")

    def call(*argv: object) -> Ran:
        code = main([str(a) for a in argv])
        return Ran(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models ``cycle`` (abc...zabc...), with heads ``right`` and ``two``, and ``random``, with ``noise``."""
    root = tmp_path_factory.mktemp("models")
    cycle = fixtures.script_trunk(ALPHABET + "a", max_positions=256)
    save(cycle, root / "cycle")
    save_adapter(fixtures.scripted_heads(cycle, "perfect"), root / "right", dtype=torch.float32)
    two = fixtures.scripted_heads(cycle, "perfect", unrolled=False, num_modules=2, num_depths=2)
    save_adapter(two, root / "two", dtype=torch.float32)
    noise = Trunk(fixtures.tiny_llama(), fixtures.byte_tokenizer(CHAT_TEMPLATE), name="random")
    save(noise, root / "random")
    save_adapter(fixtures.random_heads(noise), root / "noise", dtype=torch.float32)
    return root


def save(trunk: Trunk, folder: Path) -> None:
    trunk.model.save_pretrained(folder)
    trunk.tokenizer.save_pretrained(folder)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Three prompts, the last of another domain."""
    path = tmp_path / "letters.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "hij"}\n{"domain": "code", "prompt": "xyz"}\n', encoding="utf-8")
    return path
