"""MeanTexts: how many tokens the texts of a bench's runs have."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.planning.fields import lengths, objects
from foretell.reporting.runs import ALL

_DEFAULT_REPEATS = 3
"""Of ``bench``, where its command line does not say."""


class MeanTexts:
    """From the single measurements of a file, where it has them: a run that was stopped came to fewer repeats than it
    was to make. Older files have none; there the command line says how often each prompt was decoded.

    Raises DataError for lengths that are none.
    """

    def __init__(self, values: Mapping[str, Any], path: Path) -> None:
        self._path = path
        self._repeats = _repeats(values)
        self._samples = objects(values.get("samples", []), path, "samples")

    def of(self, run: Mapping[str, Any], num_prompts: int, num_tokens: int) -> float:
        """Mean tokens of a text of a run over ``num_prompts`` prompts that wrote ``num_tokens`` in all repeats."""
        wanted = (run.get("system"), run.get("depth"), run.get("num_nodes", 0), run.get("batch", 1))
        found = [
            tokens
            for sample in self._samples
            if wanted == tuple(sample.get(key) for key in ("system", "depth", "num_nodes", "batch"))
            and run.get("domain") in (ALL, sample.get("domain"))
            for tokens in lengths(sample.get("num_tokens"), self._path, "samples.num_tokens")
        ]
        return sum(found) / len(found) if found else num_tokens / num_prompts / self._repeats


def _repeats(values: Mapping[str, Any]) -> int:
    environment = values.get("environment")
    command = environment.get("command") if isinstance(environment, dict) else None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        words = []
    for word, after in zip(words, [*words[1:], ""], strict=True):
        given = (
            after if word == "--repeats" else word.removeprefix("--repeats=") if word.startswith("--repeats=") else ""
        )
        if given.isdecimal() and 0 < len(given) < 10 and int(given):
            return int(given)
    return _DEFAULT_REPEATS
