"""Whether the answers that an output file holds are answers to the prompts that are given now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foretell.errors import UsageError


def check_answered(prompts: Path, output: Path) -> None:
    """Raise UsageError where ``output`` holds answers to other prompts, and for the rest as ``read_answers`` does."""
    from foretell.training.answers import read_answers
    from foretell.training.jsonl import parse_line, read_prompts

    num_bytes = read_answers(prompts, output).num_bytes
    asked = {str(record["id"]): _asked(record) for record in read_prompts(prompts)}
    if not num_bytes:
        return
    with output.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if num_bytes <= 0:
                break
            num_bytes -= len(line)
            if not line.strip():
                continue
            record = parse_line(line, output, number)
            name = str(record["id"])
            if name not in asked or _asked(record) != asked[name]:
                raise UsageError(
                    f'{output}:{number} answers another prompt than "{name}" of {prompts}; give the prompts that the '
                    "answers are of to go on, or another output"
                )


def _asked(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("messages", "prompt") if name in record}
