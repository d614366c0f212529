"""Which documents are held out for the report: every n-th, so that both parts see the same mix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from foretell.training.recipe import DataConfig

T = TypeVar("T")

STREAM_AT_MOST = 400
"""Documents that a streamed corpus holds out at most: they are read before training begins."""


def set_apart(documents: Iterable[T], share: float, held_out: list[T], at_most: int = 0) -> Iterator[T]:
    """What is left to train on, as it comes; every n-th document goes to ``held_out``, n = 1 / ``share``.

    Where there are fewer than n, and two or more, the last one does. ``at_most``: no more are held out, 0 = no limit.
    """
    every = max(2, round(1 / share)) if share > 0 else 0
    previous: list[T] = []  # one document is kept back: it may turn out to be the last
    num_documents = 0
    for num_documents, document in enumerate(documents, start=1):  # noqa: B007
        yield from previous
        previous = []
        if every and num_documents % every == 0 and not (at_most and len(held_out) >= at_most):
            held_out.append(document)
        else:
            previous = [document]
    if every and 2 <= num_documents < every:
        held_out.extend(previous)
    else:
        yield from previous


def set_apart_by(config: DataConfig, documents: Iterator[T], held_out: list[T]) -> Iterator[T]:
    """``set_apart`` as a recipe says; with ``held_out_files`` nothing is."""
    if config.held_out_files:
        return documents
    return set_apart(documents, config.held_out, held_out, STREAM_AT_MOST if config.storage == "streaming" else 0)


def split_held_out(documents: list[T], share: float) -> tuple[list[T], list[T]]:
    """(training, held out) of ``set_apart``."""
    held_out: list[T] = []
    return list(set_apart(documents, share, held_out)), held_out
