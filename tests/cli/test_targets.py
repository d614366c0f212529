from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from foretell.cli.targets import COMMAND, check_json_target, check_target
from foretell.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
WRITTEN_BY_A_SCRIPT = "heads-memory.json"


@pytest.mark.parametrize(
    "content",
    [b"notes\n", b"\x00\xff", b"null", b"3", b"[1]", b"{}", b'{"prompt": "a"}', b'{"passed": true}', b"[" * 100_000],
)
def test_what_is_no_report_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path, link = tmp_path / "notes.txt", tmp_path / "link"
    path.write_bytes(content)
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(UsageError, match=f"--json: {name} exists and is no report"):
            check_json_target(name)
    assert path.read_bytes() == content


def test_an_adapter_and_a_model_are_no_reports(folders: Path) -> None:
    for file in (folders / "right" / "mtp_config.json", folders / "cycle" / "config.json"):
        with pytest.raises(UsageError, match="is no report"):
            check_json_target(file)


def test_an_empty_file_and_earlier_reports_are_replaced(tmp_path: Path) -> None:
    COMMAND.set("")  # of whatever command ran before in this process
    (tmp_path / "empty").touch()
    (tmp_path / "marked").write_text('{"foretell": "0.1", "text": "a"}')
    committed = [p for p in (ROOT / "docs" / "benchmarks").glob("*.json") if p.name != WRITTEN_BY_A_SCRIPT]
    assert len(committed) > 3
    for path in (tmp_path / "empty", tmp_path / "marked", tmp_path / "new", *committed):
        check_json_target(path)


def test_a_file_that_the_command_reads_or_writes(tmp_path: Path) -> None:
    report, link, other = tmp_path / "report.json", tmp_path / "link.json", tmp_path / "other.json"
    report.write_text('{"foretell": "0.1"}')
    link.symlink_to(report)
    os.link(report, other)
    for path, used in (
        (report, link),
        (link, report),
        (other, report),
        (tmp_path / "new", tmp_path / "x" / ".." / "new"),
    ):
        with pytest.raises(UsageError, match="--json: .* reads or writes itself"):
            check_json_target(path, [None, "demo", used])
    check_json_target(report, [None, "demo", tmp_path, tmp_path / "new"])


def test_a_link_stands_for_its_target(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "new" / "report.json")
    assert check_target("--json", link) == tmp_path / "new" / "report.json"
    with pytest.raises(UsageError, match="reads or writes itself"):
        check_json_target(link, [tmp_path / "new" / "report.json"])


def test_what_is_no_regular_file_is_left_alone(tmp_path: Path) -> None:
    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    for path in (fifo, link):
        with pytest.raises(UsageError, match=f"OUTPUT: {path} is no regular file"):
            check_target("OUTPUT", path)
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for path, problem in ((tmp_path, "is a folder"), (tmp_path / "circle", "cannot be written")):
        with pytest.raises(UsageError, match=f"OUTPUT: {path} {problem}"):
            check_target("OUTPUT", path)


def test_what_cannot_be_written_shows_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    for path, problem in (
        (tmp_path / "file" / "out.json", f"{tmp_path / 'file'} is no folder"),
        (tmp_path / "file" / "new" / "out.json", f"{tmp_path / 'file'} is no folder"),
        (tmp_path / ("a" * 300), "cannot be written .*too long"),
    ):
        with pytest.raises(UsageError, match=f"--json.*{problem}"):
            check_json_target(path)
    assert check_target("--json", tmp_path / "new" / "deep" / "out.json") == tmp_path / "new" / "deep" / "out.json"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    asked: list[Path] = []

    def refuse(dir: Path) -> None:  # as /proc does, which says that root may write
        asked.append(dir)
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(UsageError, match="--json.*cannot be written .No such file or directory"):
        check_json_target(tmp_path / "new" / "out.json")
    assert asked == [tmp_path]


def test_missing_folders_are_made_when_the_file_is_written(
    run: Any, folders: Path, prompts: Path, tmp_path: Path
) -> None:
    """As report and distill do for theirs, and --help says so; a command that fails makes none."""
    out = tmp_path / "new" / "deep" / "out.json"
    line = ("bench", folders / "cycle", "--prompts", prompts, "--max-tokens", 4, "--depths")
    ran = run(*line, 1, "--json", out)  # no heads
    assert ran.code == 2 and not out.parent.parent.exists()
    ran = run(*line, 0, "--repeats", 1, "--json", out)
    assert ran.code == 0 and json.loads(out.read_text())["runs"] and f"written: {out}" in ran.err
    assert "Missing folders are made" in " ".join(run("bench", "--help").out.replace("│", " ").split())


def test_every_command_marks_its_report(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    heads = ("--heads", folders / "right")
    data = tmp_path / "text.jsonl"
    data.write_text('{"text": "abcdefghijkl"}\n')
    few = ("--prompts", prompts, "--max-tokens", 4, "--num-prompts", 1)
    for line in (
        ("generate", folders / "cycle", "a", "--max-tokens", 2),
        ("bench", folders / "cycle", *heads, *few, "--depths", 1, "--repeats", 1),
        ("verify", folders / "cycle", *heads, *few, "--depths", 1),
        ("demo", "--model", folders / "cycle", *heads, *few, "--depth", 1),
        ("distill", folders / "cycle", prompts, tmp_path / "answers.jsonl", "--max-tokens", 2),
        ("probe", folders / "cycle", *heads, "--data", data),
        ("inspect", folders / "right"),
    ):
        out = tmp_path / f"{line[0]}.json"
        ran = run(*line, "--json", out)
        values = json.loads(out.read_text())
        assert ran.code == 0 and values["foretell"] and values["written_by"] == line[0], line


@pytest.mark.parametrize(
    "line",
    [
        "generate {m} a --json {m}/config.json",
        "verify {m} --heads {h} --prompts {p} --json {p}",
        "bench {m} --heads {h} --json {h}/mtp_config.json",
        "demo --model {m} --heads {h} --json {h}/mtp_config.json",
        "distill {m} {p} {t}/out.jsonl --json {t}/out.jsonl",
        "probe {m} --heads {h} --data {p} --json {p}",
        "inspect {h} --json {h}/mtp_config.json",
    ],
)
def test_inputs_and_outputs_survive(run: Any, folders: Path, prompts: Path, tmp_path: Path, line: str) -> None:
    named = line.format(m=folders / "cycle", h=folders / "right", p=prompts, t=tmp_path).split()
    ran = run(*named)
    assert (ran.code, ran.out) == (2, "") and "--json" in ran.err and "loaded" not in ran.err
    assert ran.err.count("\n") == 1


def test_a_report_of_another_command_is_kept(run: Any, folders: Path, prompts: Path, tmp_path: Path) -> None:
    """Hours of measurements are not lost to a plan; the same command may write its own file again."""
    out = tmp_path / "out.json"
    line = ("bench", folders / "cycle", "--prompts", prompts, "--dtype", "float32", "--depths", "0", "--repeats", 1)
    bench = (*line, "--max-tokens", 4, "--json", out)
    assert run(*bench).code == 0
    before = out.read_bytes()
    assert json.loads(before)["written_by"] == "bench"
    ran = run("verify", "--sampling", "--samples", 100, "--json", out)
    assert ran.code == 2 and "out.json was written by foretell bench" in ran.err and out.read_bytes() == before
    assert run(*bench).code == 0
    old = json.loads(before)
    del old["written_by"]  # as older versions wrote it: the command line in it says whose it is
    old["environment"]["command"] = "foretell bench x"
    out.write_text(json.dumps(old))
    assert run("verify", "--sampling", "--samples", 100, "--json", out).code == 2
