"""Files that a command writes, checked before any work: what is there is kept unless it is one of our reports."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from foretell.errors import UsageError

MARK = "foretell"
"""Key that every report has; its value is the version that wrote it."""
WRITER = "written_by"
"""Key of the command that wrote it."""

COMMAND: ContextVar[str] = ContextVar("command", default="")
"""The command that runs; reports say which one wrote them."""

_EARLIER = ({"environment", "runs"}, {"passed", "greedy"}, {"passed", "sampling"})
"""Keys of reports that were written before they had the mark."""


def check_json_target(path: Path | None, others: Iterable[str | Path | None] = ()) -> None:
    """Raise UsageError, before any work, where ``--json`` cannot be written or would destroy something else.

    ``others``: files that the command reads or writes itself.
    """
    if path is None:
        return
    target = check_target("--json", path)
    if any(target == Path(other).resolve() or _same(target, Path(other)) for other in others if other is not None):
        raise UsageError(f"--json: {path} is a file that this command reads or writes itself; give another name")
    if not target.exists() or not target.stat().st_size:
        return
    values = _report(target)
    if values is None:
        raise UsageError(
            f"--json: {path} exists and is no report of foretell's; it is left as it is, give another name"
        )
    writer = _writer(values)
    if writer and COMMAND.get() and writer != COMMAND.get():
        raise UsageError(f"--json: {path} was written by foretell {writer}; it is left as it is, give another name")


def check_target(option: str, path: Path) -> Path:
    """The file that writing to ``path`` means, links followed; nothing is there, or a regular file.

    Raises UsageError, naming the option, for anything else, and where its folder takes no file.
    """
    try:
        target = path.resolve()
        mode = _mode(target)
        if mode is not None and stat.S_ISDIR(mode):
            raise UsageError(f"{option}: {path} is a folder; give the name of a file in it")
        if mode is not None and not stat.S_ISREG(mode):
            raise UsageError(f"{option}: {path} is no regular file; it is left as it is, give another name")
        if mode is not None and not os.access(target, os.W_OK):
            raise UsageError(f"{option}: {path} is not writable; give another name")
        _check_folder(option, path, target)
        return target
    except (OSError, RuntimeError) as error:  # a name too long, a folder that takes no file, links in a circle, ...
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{option}: {path} cannot be written ({reason}); give another name") from error


def _mode(target: Path) -> int | None:
    try:
        return target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _check_folder(option: str, path: Path, target: Path) -> None:
    """The nearest parent that exists must take a new file: the folders below it are made when the file is."""
    folder = target.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise UsageError(f"{option}: {path} cannot be written, {folder} is no folder; give another name")
    with tempfile.TemporaryFile(dir=folder):
        pass


def _same(target: Path, other: Path) -> bool:
    return target.exists() and other.exists() and target.samefile(other)


def _report(file: Path) -> dict[str, Any] | None:
    """What is in a file that has the keys of a report; None for any other."""
    try:
        values = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return None
    is_ours = isinstance(values, dict) and (MARK in values or any(keys <= values.keys() for keys in _EARLIER))
    return values if is_ours else None


def _writer(values: dict[str, Any]) -> str:
    """The command that wrote a report; "" where it does not say."""
    if isinstance(named := values.get(WRITER), str):
        return named
    where = values.get("environment")
    words = str(where.get("command", "")).split() if isinstance(where, dict) else []
    return words[1] if len(words) > 1 and words[0] == "foretell" else ""
