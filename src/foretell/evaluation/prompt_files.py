"""Prompt files, read and encoded record by record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foretell.decoding.engine import Engine
from foretell.errors import ContextLengthError, DataError, UsageError
from foretell.training.jsonl import numbered_prompts


class PromptRecord(NamedTuple):
    """A record of ``file``: what stands on ``line``, and the token ids of its "messages" or its "prompt"."""

    file: Path
    line: int
    values: dict[str, Any]
    token_ids: list[int]


def encoded_prompts(engine: Engine, files: Sequence[Path], num_prompts: int | None = None) -> Iterator[PromptRecord]:
    """The first ``num_prompts`` records of every file. Raises DataError for a prompt that the model cannot take."""
    for file in files:
        for line, values in numbered_prompts(file)[:num_prompts]:
            try:
                token_ids = engine.encode(values.get("messages") or values["prompt"])
            except (ContextLengthError, UsageError) as error:
                raise DataError(str(error), file, line) from error
            yield PromptRecord(file, line, values, token_ids)
