"""What the output file of a distill run holds already: checked whole before a byte of it is changed."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foretell.errors import DataError, UsageError
from foretell.training.jsonl import parse_line


@dataclass
class Answers:
    """Answers of earlier runs in ``path``: their ids, the first record, and how many bytes whole records fill.

    ``unended``: the last record is whole but for its newline.
    """

    path: Path
    ids: set[str] = field(default_factory=set)
    first: dict[str, Any] = field(default_factory=dict)
    num_bytes: int = 0
    unended: bool = False

    def check_settings(self, settings: dict[str, Any]) -> None:
        """Raise UsageError where the first answer was made with other settings: one file, one way of answering."""
        differ = [
            f"{name} {self.first[name]!r} (now {value!r})"
            for name, value in settings.items()
            if self.first.get(name, value) != value
        ]
        if differ:
            raise UsageError(
                f"{self.path} holds answers made with other settings: {', '.join(differ)}; "
                "give the same ones to go on, or another output"
            )

    def repair(self) -> None:
        """Cut a half-written last line, left by an interrupted run, so that writing can go on."""
        if self.path.exists():
            os.truncate(self.path, self.num_bytes)
            if self.unended:
                with self.path.open("ab") as sink:
                    sink.write(b"\n")


def read_answers(prompts: str | Path, output: str | Path) -> Answers:
    """The answers ``output`` holds. Changes nothing.

    Raises UsageError where it is the prompts file or no file, and DataError where a line is no answer: then it is a
    file of something else, to be left alone.
    """
    answers = Answers(Path(output))
    if answers.path.suffix == ".gz":
        raise UsageError(f"output {output}: answers are written plain; give a name without .gz, and compress it after")
    if not answers.path.exists():
        return answers
    if not answers.path.is_file():
        raise UsageError(f"output {output} is not a file; give the name of a JSONL file")
    if Path(prompts).exists() and answers.path.samefile(prompts):
        raise UsageError(f"output {output} is the prompts file; give another output")
    with answers.path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    record = parse_line(line, answers.path, number)
                except DataError:
                    if not line.endswith(b"\n") and line.startswith(b"{" if answers.ids else b'{"id"'):
                        break  # torn by an interrupted run
                    raise
                if "id" not in record or not isinstance(record.get("token_ids"), list):
                    raise DataError(
                        'no answer of an earlier run: it has no "id" or no "token_ids"; give another output',
                        answers.path,
                        number,
                    )
                answers.first = answers.first or record
                answers.ids.add(str(record["id"]))
                answers.unended = not line.endswith(b"\n")
            answers.num_bytes += len(line)
    return answers
