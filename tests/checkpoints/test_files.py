"""What cannot be read or written is told in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.checkpoints.files import read_json
from foretell.errors import CheckpointError


def test_what_the_system_says_comes_without_its_number(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_json(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot be read (Is a directory)"
