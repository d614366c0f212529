"""Safetensors files as bytes: a header, and a range for every tensor, which is copied without being read as numbers."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from foretell.checkpoints.files import one_line
from foretell.errors import CheckpointError

_PIECE = 2**24
_ALIGNMENT = 8


def copy_kept(source: Path, target: Path, kept: Collection[str]) -> None:
    """Write ``target`` with the tensors of ``source`` that are ``kept``, and the notes of its header.

    Every byte is the source's; no more than a piece of 16 MB is in memory. Raises CheckpointError.
    """
    header, start = _header(source)
    names = sorted((name for name in header if name in kept), key=lambda name: header[name]["data_offsets"])
    entries: dict[str, Any] = {"__metadata__": header["__metadata__"]} if "__metadata__" in header else {}
    at = 0
    for name in names:
        first, last = header[name]["data_offsets"]
        entries[name] = header[name] | {"data_offsets": [at, at + last - first]}
        at += last - first
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with source.open("rb") as reader, target.open("wb") as writer:
        writer.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            first, last = header[name]["data_offsets"]
            reader.seek(start + first)
            left = last - first
            while left:
                piece = reader.read(min(left, _PIECE))
                if not piece:
                    raise CheckpointError(f"{source}: ends before {name} does; it is cut short, fetch it again")
                writer.write(piece)
                left -= len(piece)


def same_bytes(source: Path, target: Path, names: Collection[str]) -> str | None:
    """The first of ``names`` whose bytes, or description, differ between two files; None where none does."""
    (ours, start), (theirs, other) = _header(source), _header(target)
    with source.open("rb") as first, target.open("rb") as second:
        for name in names:
            (a, b), (c, d) = ours[name]["data_offsets"], theirs[name]["data_offsets"]
            if {**ours[name], "data_offsets": 0} != {**theirs[name], "data_offsets": 0} or b - a != d - c:
                return name
            first.seek(start + a)
            second.seek(other + c)
            left = b - a
            while left:
                piece = first.read(min(left, _PIECE))
                if not piece or piece != second.read(len(piece)):
                    return name
                left -= len(piece)
    return None


def _header(file: Path) -> tuple[dict[str, Any], int]:
    """The header, and where the bytes begin that its offsets count from."""
    try:
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            return json.loads(stream.read(size)), 8 + size
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file}: cannot be read ({one_line(error)})") from error
