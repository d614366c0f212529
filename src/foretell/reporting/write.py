"""Files out: a report appears whole or not at all, and takes the place of an earlier report only."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from foretell.errors import ForetellError, UsageError
from foretell.reporting.html import GENERATOR

_LOOKED_AT = 2000
"""Bytes from the start of a file that say whether it is ours."""


def check_replaceable(option: str, path: Path, overwrite: bool) -> None:
    """Raise UsageError, naming the option, where ``path`` is a file that a report may not replace."""
    if not path.exists() or not path.stat().st_size:
        return
    if not _is_ours(path):
        raise UsageError(
            f"{option}: {path} exists and is no report of foretell's; it is left as it is, give another name"
        )
    if not overwrite:
        raise UsageError(f"{option}: {path} exists; give --overwrite to replace it, or another name")


def check_folder(option: str, folder: Path, overwrite: bool) -> None:
    """The same for the folder of figures: it may be absent or empty, or hold figures of an earlier report alone."""
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_symlink() or not folder.is_dir():
        raise UsageError(f"{option}: {folder}, where its figures go, is no folder; give another name")
    found = sorted(folder.iterdir())
    if others := [entry.name for entry in found if entry.suffix != ".svg" or not _is_ours(entry)]:
        raise UsageError(f"{option}: {folder}, where its figures go, holds {others[0]}; give another name")
    if found and not overwrite:
        raise UsageError(f"{option}: {folder}, where its figures go, exists; give --overwrite to replace it")


def figures_folder(markdown: Path) -> Path:
    """``report.md`` -> ``report_files``."""
    return markdown.with_name(f"{markdown.stem}_files")


def write_files(texts: Mapping[Path, str], folders: Mapping[Path, Mapping[str, str]]) -> None:
    """Write all of them; ``folders``: path -> file name -> text. All is ready before anything is replaced.

    Raises ForetellError where one cannot be written: then what was there before is there again.
    """
    ready: list[tuple[Path, Path]] = []
    old: list[tuple[Path, Path]] = []
    done: list[Path] = []
    try:
        for folder, files in folders.items():
            fresh = _beside(folder, ready)
            fresh.mkdir()
            for name, text in files.items():
                (fresh / name).write_text(text, encoding="utf-8", newline="\n")
        for path, text in texts.items():
            _beside(path, ready).write_text(text, encoding="utf-8", newline="\n")
        for fresh, path in ready:
            if path.exists():
                aside = fresh.with_suffix(".old")
                path.rename(aside)
                old.append((aside, path))
            fresh.rename(path)
            done.append(path)
    except BaseException as error:
        for path in done:
            _remove(path)
        for aside, path in old:
            with contextlib.suppress(OSError):
                aside.rename(path)
        old.clear()
        if isinstance(error, OSError):
            name = error.filename2 or error.filename or "the report"
            raise ForetellError(
                f"{name} cannot be written ({error.strerror}); make room, or give another name"
            ) from error
        raise
    finally:
        for fresh, _ in ready:
            _remove(fresh)
        for aside, _ in old:
            _remove(aside)


def _beside(path: Path, ready: list[tuple[Path, Path]]) -> Path:
    """A new name in the same folder, which is made where it is missing; noted with the name that it will take."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{os.getpid()}.{uuid.uuid4().hex[:8]}.new")
    ready.append((fresh, path))
    return fresh


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _is_ours(file: Path) -> bool:
    """True for a file that begins as our reports do."""
    try:
        with file.open("rb") as source:
            return GENERATOR.encode() in source.read(_LOOKED_AT)
    except OSError:
        return False
