"""Files that are damaged at random: converted, or refused in one line of ours; never another error, never a trace."""

from __future__ import annotations

import random
import shutil
from functools import partial
from pathlib import Path

import pytest

from foretell.convert.graft import graft
from foretell.convert.strip import strip
from foretell.errors import ForetellError
from foretell.inspection.inspect import inspect_checkpoint
from tests.convert.models import with_heads

NUM_TRIALS = 60


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good folder in three shards."""
    return with_heads(tmp_path_factory.mktemp("fuzz") / "m", 3)


def damage(file: Path, chance: random.Random) -> None:
    """Cut, overwrite, double or replace some bytes, most often near the beginning, where headers are."""
    data = bytearray(file.read_bytes())
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(min(len(data), chance.choice([16, 400, len(data)])))
        match chance.randrange(4):
            case 0:
                del data[at : at + chance.randint(1, 40)]
            case 1:
                data[at] = chance.randrange(256)
            case 2:
                data[at:at] = data[at : at + chance.randint(1, 40)]
            case 3:
                data[at : at + 1] = chance.choice([b"null", b"-1", b"[]", b"{}", b'"', b"../", b"1e99", b"true"])
        if not data:
            break
    file.write_bytes(data)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "model-00002-of-00003.safetensors"])
def test_damaged_files(whole: Path, tmp_path: Path, name: str) -> None:
    for trial in range(NUM_TRIALS):
        chance = random.Random(f"{name} {trial}")
        folder, out = tmp_path / "m", tmp_path / "out"
        shutil.copytree(whole, folder)
        damage(folder / name, chance)
        acts = (partial(inspect_checkpoint, folder), partial(strip, folder, out), partial(graft, folder, whole, out))
        for act in acts:
            try:
                act()
            except ForetellError as error:
                assert "\n" not in str(error), (trial, error)
            except Exception as error:
                pytest.fail(f"trial {trial}: {type(error).__name__}: {error}")
            shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(folder)
        assert list(tmp_path.iterdir()) == []
