"""foretell report: files in, a page out; nothing that is not a report is ever replaced."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foretell.errors import ForetellError
from foretell.reporting import style, write
from tests.reporting import made


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style, "_save", lambda paint, width, height: "<svg ><g></g></svg>")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.chdir(tmp_path)
    return [made.write(tmp_path, "bench.json", made.bench()), made.write(tmp_path, "verify.json", made.verify())]


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_results_are_printed_and_the_page_is_written(
    run: Any, files: list[Path], tmp_path: Path, undrawn: None
) -> None:
    ran = run("report", *files, "--title", "My <run>")
    assert (ran.code, ran.err) == (0, "written: report.html\n")
    assert ran.out.splitlines()[0].startswith("bench: Fastest is depth 1 at batch 1: 1.40x")
    assert "<h1>My &lt;run&gt;</h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert names(tmp_path) == ["bench.json", "report.html", "verify.json"]


def test_help_names_every_command_whose_files_it_reads(run: Any) -> None:
    shown = " ".join(run("report", "--help").out.replace("│", " ").split())
    assert "What bench, compare, verify, probe, eval and plan write" in shown


def test_a_probe_file_without_data_is_a_report(run: Any, files: list[Path], tmp_path: Path, undrawn: None) -> None:
    ran = run("report", made.write(tmp_path, "served.json", made.served()))
    assert ran.code == 0 and ran.out.startswith("Served acceptance by depth 0.50 0.30, predicted 0.60 0.38: ")


def test_markdown_with_its_figures(run: Any, files: list[Path], tmp_path: Path, undrawn: None) -> None:
    assert run("report", *files, "--markdown", "out/r.md", "--html", "out/r.html").code == 0
    assert names(tmp_path / "out") == ["r.html", "r.md", "r_files"]
    text = (tmp_path / "out/r.md").read_text(encoding="utf-8")
    drawn = names(tmp_path / "out/r_files")
    assert drawn and all(f"(r_files/{name})" in text for name in drawn)


def test_an_earlier_report_is_replaced_only_when_asked(
    run: Any, files: list[Path], tmp_path: Path, undrawn: None
) -> None:
    argv = ("report", files[0], "--html", "a.html", "--markdown", "a.md")
    assert run(*argv).code == 0
    before = (tmp_path / "a.html").read_bytes(), names(tmp_path / "a_files")
    ran = run(*argv, "--title", "Other")
    assert ran.code == 2 and "--overwrite" in ran.err and (tmp_path / "a.html").read_bytes() == before[0]
    (tmp_path / "a.html").unlink()
    assert "a.md exists" in run(*argv).err
    (tmp_path / "a.md").unlink()
    assert "a_files" in run(*argv).err
    assert run("report", files[1], *argv[2:], "--overwrite").code == 0
    assert names(tmp_path / "a_files") == []  # figures of the report before are gone
    assert names(tmp_path) == ["a.html", "a.md", "a_files", "bench.json", "verify.json"]


@pytest.mark.parametrize(
    "argv", [("--html", "mine"), ("--markdown", "mine"), ("--html", "bench.json"), ("--markdown", "n.md")]
)
def test_what_is_not_ours_is_never_replaced(
    argv: tuple[str, str], run: Any, files: list[Path], tmp_path: Path, undrawn: None
) -> None:
    made.write(tmp_path, "mine", "my own text")
    made.write(tmp_path, "n_files/mine.svg", "<svg/>")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    ran = run("report", *files, *argv, "--overwrite")
    assert ran.code == 2 and ran.err.count("\n") == 1 and argv[0] in ran.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_wrong_files_and_targets_are_one_line(run: Any, files: list[Path], tmp_path: Path, undrawn: None) -> None:
    for argv in (["none.json"], [tmp_path], [files[0], files[0]], [files[0], "--html", tmp_path],
                 [files[0], "--html", "x", "--markdown", "x"], []):  # fmt: skip
        ran = run("report", *argv)
        assert ran.code in (1, 2) and ran.out == "" and ran.err.count("\n") == 1, argv
    assert names(tmp_path) == ["bench.json", "verify.json"]


def test_of_a_wrong_file_and_a_page_that_exists_the_file_is_told(
    run: Any, files: list[Path], tmp_path: Path, undrawn: None
) -> None:
    assert run("report", files[0]).code == 0
    other = made.write(tmp_path, "other.json", {"setting": 1})
    for argv in ([other], [files[0], other, "--html", "bench.json"], [other, "--html", tmp_path]):
        ran = run("report", *argv)
        assert ran.code == 1 and "other.json: has the keys setting" in ran.err and ran.err.count("\n") == 1, argv
    ran = run("report", files[0])
    assert ran.code == 2 and "report.html exists" in ran.err


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, folder = tmp_path / "a.md", tmp_path / "a_files"
    write.write_files({page: "old"}, {folder: {"f.svg": "old"}})
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if target == page and self.suffix == ".new":
            raise OSError(28, "No space left on device", str(self))
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(ForetellError, match="No space left"):
        write.write_files({page: "new"}, {folder: {"f.svg": "new", "g.svg": "new"}})
    assert page.read_text() == "old" and names(folder) == ["f.svg"] and (folder / "f.svg").read_text() == "old"
    assert names(tmp_path) == ["a.md", "a_files"]


def test_problems_are_counted_on_stderr(run: Any, files: list[Path], tmp_path: Path, undrawn: None) -> None:
    values = made.bench()
    values["runs"][1]["step_ms"] = -1
    ran = run("report", made.write(tmp_path, "odd.json", values))
    assert ran.code == 0 and "odd: 1 value not known" in ran.err
    assert "runs[1].step_ms: -1 is not a number from 0" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_no_model_library_is_loaded(files: list[Path]) -> None:
    code = (
        "import sys; from foretell.cli.main import main; code = main(sys.argv[1:]); "
        "assert not {'torch', 'transformers', 'matplotlib.pyplot'} & set(sys.modules); sys.exit(code)"
    )
    subprocess.run([sys.executable, "-c", code, "report", str(files[0])], check=True)


def test_without_matplotlib_it_says_what_to_install(
    run: Any, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = run("report", *files)
    assert ran.code == 1 and "foretell[plot]" in ran.err and ran.err.count("\n") == 1
