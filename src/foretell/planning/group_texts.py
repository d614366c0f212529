"""Which requests a bench decoded together, and how long their prompts and texts were.

A bench file has the lengths of prompts under ``batches``, and those of texts under ``samples``. Older ones lack both:
then all texts of a domain count as equally long, and nobody knows the prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretell.checkpoints.files import read_json
from foretell.errors import DataError
from foretell.planning.acceptance import ALL
from foretell.planning.bench_file import BenchFile
from foretell.planning.fields import count, lengths, objects
from foretell.planning.groups import Text

MAX_WALK = 2**22
"""Tokens of all prompts and texts at one batch size: every step is walked through, several times a depth."""


@dataclass(frozen=True)
class TextGroup:
    """``domain``: as the file's runs have it, "all" for mixed ones."""

    domain: str
    texts: tuple[Text, ...]

    @property
    def knows_prompts(self) -> bool:
        """True where the lengths of all prompts are known."""
        return all(text.prompt_tokens is not None for text in self.texts)


def read_groups(bench: BenchFile) -> dict[int, list[TextGroup]]:
    """Groups of every batch size above 1. Raises DataError for lengths that are none, or that no bench has."""
    values = read_json(bench.path)
    samples = objects(values.get("samples", []), bench.path, "samples")
    prompts = {
        count(batch.get("batch"), bench.path, "batches.batch"): batch.get("prompt_tokens")
        for batch in objects(values.get("batches", []), bench.path, "batches")
    }
    groups = {
        batch: _recorded(bench, batch, samples, prompts.get(batch)) or _even(bench, batch)
        for batch in bench.batches
        if batch > 1
    }
    for batch, of_batch in groups.items():
        texts = [text for group in of_batch for text in group.texts]
        if (total := sum((text.prompt_tokens or 0) + text.num_tokens for text in texts)) > MAX_WALK:
            raise DataError(
                f"has {total:,} tokens of prompts and texts at batch {batch}, expected at most {MAX_WALK:,}; the file "
                "is damaged, or give one of fewer prompts",
                bench.path,
            )
    return groups


def group_sizes(num_prompts: int, batch: int) -> list[int]:
    """Prompts of each group, as ``bench`` makes them: about twice ``batch`` each."""
    num_groups = max(1, round(num_prompts / (2 * batch)))
    return [len(range(start, num_prompts, num_groups)) for start in range(num_groups)]


def _recorded(bench: BenchFile, batch: int, samples: Any, prompts: Any) -> list[TextGroup]:
    """From the plain run's first time through every group; none where the file does not have it."""
    groups: dict[int, TextGroup] = {}
    domains = bench.domains(batch)
    for sample in samples:
        is_plain = (sample.get("system"), sample.get("depth")) == ("foretell", 0)
        index = sample.get("prompt")
        if is_plain and sample.get("batch") == batch and isinstance(index, int) and index not in groups:
            texts = lengths(sample.get("num_tokens"), bench.path, "samples.num_tokens")
            of_prompts = _of_group(bench, prompts, index, len(texts))
            domain = sample.get("domain")
            groups[index] = TextGroup(
                domain if domain in domains else ALL,
                tuple(Text(prompt, num) for prompt, num in zip(of_prompts, texts, strict=True)),
            )
    return list(groups.values())


def _of_group(bench: BenchFile, prompts: Any, index: int, num_texts: int) -> list[int] | list[None]:
    if prompts is None:
        return [None] * num_texts
    if not isinstance(prompts, list) or not 0 <= index < len(prompts):
        raise DataError("batches.prompt_tokens is no list of every group's; the file is damaged", bench.path)
    found = lengths(prompts[index], bench.path, "batches.prompt_tokens")
    if len(found) != num_texts:
        raise DataError(f"a group has {len(found)} prompts and {num_texts} texts; the file is damaged", bench.path)
    return found


def _even(bench: BenchFile, batch: int) -> list[TextGroup]:
    """As many groups as ``bench`` makes, of texts of the plain run's mean length."""
    groups = []
    for domain in bench.domains(batch) or [ALL]:
        plain = next((run for run in bench.at(batch, domain) if run.depth == 0), None)
        if plain is not None:
            text = Text(None, max(1, round(plain.text_tokens)))
            groups += [TextGroup(domain, (text,) * num) for num in group_sizes(plain.num_prompts, batch)]
    return groups
