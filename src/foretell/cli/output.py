"""Where text goes: results to stdout, everything else to stderr, and a copy of the results to a JSON file."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.cli.targets import COMMAND, MARK, WRITER, check_json_target
from foretell.errors import ForetellError
from foretell.reporting.labels import counted as counted  # one for screen and page

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


def write_json(path: Path | None, data: Mapping[str, Any]) -> None:
    """Write a report in one move, so that a reader never sees half a file; nothing without a path.

    It is marked as ours, so that the next one may take its place. Raises ForetellError where it cannot be written.
    """
    if path is None:
        return
    from foretell.analysis.environment import package_version

    check_json_target(path)
    target = path.resolve()
    partial = target.with_name(f".{os.getpid()}.partial")  # no longer than ``path`` may be
    head = {MARK: package_version("foretell"), **({WRITER: COMMAND.get()} if COMMAND.get() else {})}
    text = json.dumps({**head, **data}, indent=2, ensure_ascii=False)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(f"{text}\n", encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        raise ForetellError(
            f"--json: {path} cannot be written ({error.strerror}); make room, or name another"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    note(f"written: {path}")
