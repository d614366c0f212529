from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretell.cli.output import counted, write_json
from foretell.cli.targets import COMMAND
from foretell.errors import ForetellError


def test_a_report_is_written_whole_and_takes_the_place_of_one(tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.json"
    COMMAND.set("bench")
    write_json(path, {"a": "ü"})
    write_json(path, {"a": 2})
    values = json.loads(path.read_text(encoding="utf-8"))
    assert values["a"] == 2 and list(values) == ["foretell", "written_by", "a"] and values["foretell"]
    assert [p.name for p in path.parent.iterdir()] == ["out.json"]
    write_json(tmp_path / ("a" * 250), {})


def test_nothing_is_written_that_json_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text())["a"] == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    link, target = tmp_path / "link.json", tmp_path / "kept" / "report.json"
    link.symlink_to(target)
    for value in (1, 2):  # to nothing first, then to a report
        write_json(link, {"a": value})
        assert link.is_symlink() and not target.is_symlink() and json.loads(target.read_text())["a"] == value
    assert [p.name for p in target.parent.iterdir()] == ["report.json"]


def test_a_disk_that_is_full_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ForetellError, match="--json.*No space left"):
        write_json(tmp_path / "out.json", {})
    assert list(tmp_path.iterdir()) == []


def test_one_of_a_thing_is_no_plural() -> None:
    assert [counted(n, "thread") for n in (0, 1, 1200)] == ["0 threads", "1 thread", "1,200 threads"]
