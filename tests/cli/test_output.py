from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretell.cli.output import check_json_target, write_json
from foretell.errors import UsageError


def test_json_is_written_whole_and_replaces_json(tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.json"
    write_json(path, {"a": "ü"})
    write_json(path, {"a": 2})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": 2}
    assert [p.name for p in path.parent.iterdir()] == ["out.json"]


@pytest.mark.parametrize("content", [b"notes\n", b"\x00\xff"])
def test_a_file_of_another_kind_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="--json.*notes.txt"):
        check_json_target(path)
    with pytest.raises(UsageError):
        write_json(path, {})
    assert path.read_bytes() == content


def test_a_folder_is_no_json_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--json.* is a folder"):
        check_json_target(tmp_path)


def test_what_cannot_be_written_shows_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    for path, problem in (
        (tmp_path / "file" / "out.json", f"{tmp_path / 'file'} is no folder"),
        (tmp_path / "file" / "new" / "out.json", f"{tmp_path / 'file'} is no folder"),
        (tmp_path / ("a" * 300), "cannot be written .*too long"),
    ):
        with pytest.raises(UsageError, match=f"--json.*{problem}"):
            check_json_target(path)
    check_json_target(tmp_path / "new" / "deep" / "out.json")
    assert not (tmp_path / "new").exists()
    write_json(tmp_path / ("a" * 250), {})
    asked: list[Path] = []
    monkeypatch.setattr("os.access", lambda folder, mode: bool(asked.append(folder)))  # a test may run as root
    with pytest.raises(UsageError, match=f"--json.*{tmp_path} is not writable"):
        check_json_target(tmp_path / "new" / "out.json")
    assert asked == [tmp_path]


def test_nothing_is_written_that_json_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert len(list(tmp_path.iterdir())) == 1
