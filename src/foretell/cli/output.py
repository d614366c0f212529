"""Where text goes: results to stdout, everything else to stderr, and a copy of the results to a JSON file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_WIDTH = 200
"""Columns of a table that goes to a file or a pipe, where no terminal says how wide it is."""


def note(message: str) -> None:
    """One line for the reader, to stderr."""
    print(message, file=sys.stderr, flush=True)


def results() -> Console:
    """Console for results (stdout): colour on a terminal only."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else _WIDTH)


def progress() -> Progress:
    """Progress on stderr; rich is imported when the first long job begins."""
    from foretell.cli.progress import ProgressOrNotes

    return ProgressOrNotes()


def check_json_target(path: Path | None) -> None:
    """Raise UsageError, before any work, where ``--json`` cannot be written or would destroy a file of another kind."""
    if path is None:
        return
    try:
        if path.is_dir():
            raise UsageError(f"--json: {path} is a folder; give the name of a file in it")
        _check_folder(path)
        if path.exists() and path.stat().st_size and json.loads(path.read_bytes()) is None:
            raise ValueError
    except ValueError as error:
        raise UsageError(
            f"--json: {path} exists and is no JSON file; it is left as it is, give another name"
        ) from error
    except OSError as error:  # a name too long, a folder that may not be entered, ...
        raise UsageError(f"--json: {path} cannot be written ({error.strerror}); give another name") from error


def _check_folder(path: Path) -> None:
    """The nearest parent that exists must take a new file: the folders below it are made when the file is."""
    folder = path.absolute().parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise UsageError(f"--json: {path} cannot be written, {folder} is no folder; give another name")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--json: {path} cannot be written, {folder} is not writable; give another name")


def write_json(path: Path | None, data: Any) -> None:
    """Write ``data`` in one move, so that a reader never sees half a file; nothing without a path."""
    if path is None:
        return
    check_json_target(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{os.getpid()}.partial")  # no longer than ``path`` may be
    try:
        partial.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    note(f"written: {path}")
