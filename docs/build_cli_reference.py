"""Writes docs/reference/cli.md: the help of every command as a terminal of 100 columns shows it."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from foretell.cli.main import app

TARGET = Path(__file__).parent / "reference" / "cli.md"
WIDTH = 100
HEADER = """\
# Command line

What `foretell --help` and `foretell COMMAND --help` print. This page is generated: change the text in
`src/foretell/cli`, then run `python docs/build_cli_reference.py`.
"""


def command_names() -> list[str]:
    """Commands in the order in which the help lists them."""
    return sorted((name for name in app if not name.startswith("-")), key=lambda name: app[name].sort_key)


def commands() -> list[str]:
    """Every command, those within a command right behind it."""
    found = []
    for name in command_names():
        found.append(name)
        inner = [sub for sub in app[name] if not sub.startswith("-")]
        found += [f"{name} {sub}" for sub in sorted(inner, key=lambda sub: app[name][sub].sort_key or 0)]
    return found


def help_text(command: str) -> str:
    """The help page of one command, or of the whole program for "": no colour, no spare white space."""
    console = Console(
        file=io.StringIO(), width=WIDTH, color_system=None, force_terminal=False, highlight=False, legacy_windows=False
    )
    with console.capture() as captured:
        app.help_print(command.split(), console=console)
    text = "\n".join(line.rstrip() for line in captured.get().splitlines())
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def page() -> str:
    """The whole page."""
    parts = [HEADER]
    for command in ["", *commands()]:
        parts.append(f"## {f'foretell {command}'.strip()}\n\n```text\n{help_text(command)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(page(), encoding="utf-8")
