"""Commands and Python blocks of the README and the guides run, in order, on a tiny model in place of "demo"."""

from __future__ import annotations

import re
import shlex
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from cyclopts import App

from foretell.cli.main import app, main
from tests.docs.conftest import ROOT
from tests.docs.shell import PORT, Shell
from tests.docs.snippets import Snippet, commands, snippets

RUN = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))) if page.exists()]
READ = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md"]
"""Pages with placeholders (MODEL, NAME): their commands are checked, not run."""

SMALLER = {
    "demo": {"--max-tokens": "4", "--num-prompts": "1"},
    "bench": {"--max-tokens": "4", "--num-prompts": "1", "--repeats": "1"},
    "verify": {
        "--max-tokens": "4",
        "--num-prompts": "1",
    },
}
"""Added to a command that leaves the option out, to save time."""


def check(snippet: Snippet) -> None:
    """Fail where a command, an option or a Makefile target does not exist, or what is to run lacks an argument."""
    if snippet.kind == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert words(snippet)[1] in targets, f"no such target; there are {', '.join(targets)}"
    elif snippet.kind == "shell":
        for command in commands(snippet):
            check(command)
    elif snippet.kind == "foretell" and snippet.runs:
        app.parse_args(words(snippet)[1:], exit_on_error=False, print_error=False)
    elif snippet.kind == "foretell":
        name, *rest = words(snippet)[1:]
        assert name in [*app, "COMMAND"], f"no such command; there are {', '.join(app)}"
        known = {n for part in inner(app, [name, *rest]) for a in part.assemble_argument_collection() for n in a.names}
        unknown = {word for word in rest if word.startswith("--")} - known - {"--help", "--debug"}
        assert not unknown, f"no such option: {', '.join(unknown)}"


def inner(command: App, names: list[str]) -> list[App]:
    """The command that ``names`` begin with, and the one within it, as far as there are any."""
    if not names or names[0] not in command:
        return []
    found = command[names[0]]
    return [found] * (found.default_command is not None) + inner(found, names[1:])


def run(
    snippet: Snippet, names: dict[str, object], capsys: pytest.CaptureFixture[str], shell: Shell | None = None
) -> None:
    """Fail where the snippet does; ``names`` holds what Python blocks above have defined, ``shell`` runs the page's."""
    if snippet.kind == "shell":
        assert shell is not None
        shell.run(snippet.text)
    elif snippet.kind == "foretell":
        argv = words(snippet)[1:]
        on_a_model = not argv[1].startswith("--")
        for option, value in SMALLER.get(argv[0], {}).items() if on_a_model else ():
            argv += [] if option in argv else [option, value]
        capsys.readouterr()
        code = main(argv)
        assert code == 0, f"exit code {code}: {capsys.readouterr().err}"
    elif snippet.kind == "python":
        exec(compile(snippet.text, "block", "exec"), names)


def words(snippet: Snippet) -> list[str]:
    return shlex.split(snippet.text, comments=True)


def run_page(page: Path, capsys: pytest.CaptureFixture[str], do_run: bool = True) -> int:
    """Check, and where they are complete run, all snippets; how many were run."""
    names: dict[str, object] = {"__name__": "__main__"}
    found = snippets(page)
    with ExitStack() as stack:
        shell = None
        if do_run and any(snippet.kind == "shell" for snippet in found):
            shell = stack.enter_context(closing(Shell(Path.cwd())))
            found = [replace(snippet, text=snippet.text.replace(PORT, shell.port)) for snippet in found]
        for snippet in found:
            try:
                check(snippet)
                if snippet.runs and do_run:
                    run(snippet, names, capsys, shell)
            except Exception as error:
                pytest.fail(f"{page.name}:{snippet.line}: {snippet.text}\n{type(error).__name__}: {error}")
    return sum(snippet.runs for snippet in found)


SLOW = {"serve"}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem in SLOW)) for page in RUN],
)
def test_what_a_page_shows_runs(page: Path, working_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_page(page, capsys) > 0


@pytest.mark.parametrize("page", READ, ids=lambda page: page.stem)
def test_what_a_page_names_exists(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_page(page, capsys, do_run=False)


COMMANDS = [name for name in app if not name.startswith("-") and name != "convert"]
COMMANDS += [f"convert {name}" for name in app["convert"] if not name.startswith("-")]


@pytest.mark.parametrize("name", COMMANDS)
def test_what_help_suggests_exists(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(inner(app, name.split())[-1].help.partition("Try:")[2], encoding="utf-8")
    assert run_page(page, capsys, do_run=False) > 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("    foretell generat demo hi", 'Unknown command "generat"'),
        ("```\nforetell generate demo hi --dept 2\n```", "Unknown option: --dept"),
        ("    foretell generate demo", "PROMPT"),
        ("    foretell inspect nowhere", "nowhere: no such file or folder"),
        ("    foretell generate demo hi \\\n        --depth 2", "no heads"),
        ("    make dmo", "no such target"),
        ("Then `foretell verfy` it.", "no such command"),
        ("Or give `foretell train --overwrit`.", "no such option: --overwrit"),
        ("Run `make chek`.", "no such target"),
        ("    import foretell\n\n    foretell.lod", "no attribute 'lod'"),
        ("```python\nfrom foretell import load\nload('demo', head='x')\n```", "head"),
        ("```bash\nforetell serve demo --prot 1 &\n```", "Unknown option: --prot"),
        ("```bash\ncurl -s http://localhost:8000/health\n```", "exit code 7"),
        ("```bash\ncurl -s file:///dev/null\n```", "answers ['000']"),
        ("```bash\ncurl -s file:///dev/null  # 400\n```", "answers ['000']"),
    ],
)
def test_what_is_wrong_fails(text: str, problem: str, working_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = working_copy / "page.md"
    page.write_text(f"# Title\n\n{text}\n", encoding="utf-8")
    with pytest.raises(pytest.fail.Exception, match=re.escape(problem)) as caught:
        run_page(page, capsys)
    assert str(caught.value).startswith("page.md:")
