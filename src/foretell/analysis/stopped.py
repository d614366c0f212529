"""What is kept of a measurement that an interruption, a signal or an error stopped: all of it, told from a whole one.

Systems take turns (`records.turns`). In the turn that was stopped some have decoded a text that others have not; so
summaries are made of whole turns alone, in which every system decoded the same text, and single measurements are all
kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from foretell.analysis.records import Record

Turn = tuple[int, int]
"""(repeat, index of the prompt or group)."""
_Report = TypeVar("_Report")


def whole_turns(records: Sequence[Record[Any]], num_systems: int) -> set[Turn]:
    """The turns in which all of ``num_systems`` were measured."""
    counts = Counter((record.repeat, record.prompt) for record in records)
    return {turn for turn, count in counts.items() if count == num_systems}


def of_turns(records: Sequence[Record[Any]], turns: set[Turn]) -> list[Record[Any]]:
    """The records of these turns, in their order."""
    return [record for record in records if (record.repeat, record.prompt) in turns]


@contextmanager
def kept(on_stop: Callable[[_Report], None] | None, report: Callable[[bool], _Report]) -> Iterator[None]:
    """Whatever ends the block early goes on, after ``on_stop`` was given what had been measured.

    ``report(with_summaries)`` makes it. Summaries may need the trunk, to explain texts that differ; where the trunk
    fails, which may be what ended the block, it is made without them.
    """
    try:
        yield
    except BaseException:
        if on_stop is not None:
            try:
                found = report(True)
            except BaseException:  # a second Ctrl-C too
                found = report(False)
            on_stop(found)
        raise
