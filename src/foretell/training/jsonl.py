"""JSONL in and out: a broken line is reported with its file and number, an interrupted output can be continued."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretell.errors import DataError


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, record) of every non-empty line; raises DataError where a line is no JSON object."""
    path = Path(path)
    if not path.is_file():
        raise DataError("no such file; give the path of a JSONL file", path)
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise DataError(f"not valid JSON ({error}); write one JSON object a line", path, number) from error
            if not isinstance(record, dict):
                raise DataError(f"a {type(record).__name__}, not a JSON object; write one object a line", path, number)
            yield number, record


def read_prompts(path: str | Path) -> list[dict[str, Any]]:
    """Records with "messages" (a chat) or "prompt" (text); "id" defaults to the line number."""
    records = []
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
        records.append({"id": str(number), **record})
    if not records:
        raise DataError("no records", path)
    return records


def repair_tail(path: Path) -> None:
    """Cut a half-written last line, left by an interrupted run, so that writing can go on."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        path.write_bytes(data[: data.rfind(b"\n") + 1])
