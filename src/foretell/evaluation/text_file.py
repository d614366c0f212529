"""A local text file, read whole; no torch import."""

from __future__ import annotations

from pathlib import Path

from foretell.errors import DataError


def read_text(file: Path) -> str:
    """The text of a UTF-8 file, line ends as they are. Raises DataError for one that is none, or empty."""
    if file.is_dir():
        raise DataError("is a folder; name its files", file)
    try:
        text = file.read_bytes().decode("utf-8")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror}); give the path of a text file", file) from error
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 ({error.reason}, byte {error.start}); save it as UTF-8", file) from error
    if not text:
        raise DataError("is empty; give a file with text in it", file)
    return text
