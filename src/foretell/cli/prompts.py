"""Prompt files -> token ids with a domain, for the commands that measure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretell.analysis.texts import BenchPrompt
    from foretell.models.mtp_model import MTPModel


def check_prompts(files: Sequence[Path]) -> None:
    """Raise DataError for a missing file or a broken line, before a model is loaded."""
    from foretell.training.jsonl import read_prompts

    for file in files:
        read_prompts(file)


def load_prompts(model: MTPModel, files: Sequence[Path], num_prompts: int | None) -> list[BenchPrompt]:
    """The first ``num_prompts`` records of every file, encoded; the domain is the record's own or the file's name.

    Raises DataError, naming file and line, for a prompt that the model cannot take.
    """
    from foretell.analysis.texts import BenchPrompt
    from foretell.decoding.engine import Engine
    from foretell.evaluation.prompt_files import encoded_prompts

    prompts = []
    for file, _, record, token_ids in encoded_prompts(Engine(model), files, num_prompts):
        messages = record.get("messages")
        text = messages[-1]["content"] if messages else record["prompt"]
        prompts.append(BenchPrompt(str(record.get("domain") or file.stem), token_ids, text))
    return prompts
