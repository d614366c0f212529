"""JSONL in: a broken line is reported with its file and number; a name that ends in .gz is read through gzip."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretell.errors import DataError


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, record) of every non-empty line; raises DataError where a line is no JSON object."""
    path = Path(path)
    if not path.is_file():
        raise DataError("no such file; give the path of a JSONL file", path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, parse_line(line, path, number)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataError(f"not a whole gzip file ({error}); compress it again, or give the plain file", path) from error


def parse_line(line: bytes, path: Path, number: int) -> dict[str, Any]:
    """One line as a record; raises DataError where it is no JSON object in UTF-8."""
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 ({error.reason}, byte {error.start}); save it as UTF-8", path, number) from error
    except ValueError as error:
        raise DataError(f"not valid JSON ({error}); write one JSON object a line", path, number) from error
    if not isinstance(record, dict):
        raise DataError(f"a {type(record).__name__}, not a JSON object; write one object a line", path, number)
    return record


def read_prompts(path: str | Path) -> list[dict[str, Any]]:
    """Records with "messages" (a chat) or "prompt" (text); "id" defaults to the line number and occurs once."""
    return [record for _, record in numbered_prompts(path)]


def numbered_prompts(path: str | Path) -> list[tuple[int, dict[str, Any]]]:
    """``read_prompts`` with the line number of every record."""
    records = []
    line_of: dict[str, int] = {}
    for number, record in read_jsonl(path):
        messages, prompt = record.get("messages"), record.get("prompt")
        is_chat = (
            isinstance(messages, list)
            and messages
            and all(
                isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str)
                for m in messages
            )
        )
        if not is_chat and not (isinstance(prompt, str) and prompt):
            raise DataError('needs "prompt" (text) or "messages" (a list of role and content)', path, number)
        record = {"id": str(number), **record}
        if (first := line_of.setdefault(str(record["id"]), number)) != number:
            raise DataError(
                f'id "{record["id"]}" is that of line {first} too (without "id", the line number is the id); '
                "give each prompt an id of its own",
                path,
                number,
            )
        records.append((number, record))
    if not records:
        raise DataError("no records", path)
    return records
