"""What ends a run of ``bench``, ``compare`` or ``eval`` early, what is said of it, and where its file is."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Protocol

from foretell.cli.output import counted, note
from foretell.errors import ForetellError

EVALUATED = ("text", "tasks", "parse")
"""The measurements of ``eval``, as its files name them."""
NOTHING_MEASURED = "stopped: nothing was measured yet; nothing written"
WHOLE_TURNS = "figures are of whole turns, in which every system decoded the same text"


class Report(Protocol):
    """What was found at one batch size; ``num_planned`` is None where it was finished."""

    batch: int
    num_planned: int | None

    @property
    def runs(self) -> Sequence[object]:
        """Summaries; none where no turn of all systems was whole."""

    @property
    def records(self) -> Sequence[object]:
        """Single measurements."""

    def outputs(self) -> list[list[int]]:
        """Plain decoding's texts, token ids."""


class Terminated(SystemExit):
    """SIGTERM came."""


def stopped_line(report: Report, json: Path | None) -> str:
    """What there is of a batch size that was not finished."""
    assert report.num_planned is not None
    made = f"{len(report.records):,} of {counted(report.num_planned, 'measurement')}"
    kept = " and kept" if json else "; --json FILE would have kept them"
    figures = WHOLE_TURNS if report.runs else "no turn of all systems was whole, so there are no figures of it"
    return f"stopped at batch {report.batch}: {made} made{kept}; {figures}"


def unfinished(report: Report) -> list[str]:
    """A line below the table of a batch size that was not finished; none of one that was."""
    if report.num_planned is None:
        return []
    made = f"{len(report.records):,} of {counted(report.num_planned, 'measurement')}"
    return [f"NOT FINISHED: {made}; {WHOLE_TURNS}."]


def part_target(path: Path | None, num_kept: int) -> Path | None:
    """Where a part of a run with ``num_kept`` measurements is written, with a line where that is not ``path``: not over
    the results of a whole one, and not over a part that holds more.
    """
    if path is None:
        return None
    beside = (path.with_name(f"{path.stem}.incomplete{'' if n == 1 else f'-{n}'}{path.suffix}") for n in count(1))
    target = next(found for found in chain([path], beside) if _may_be_replaced(found, num_kept))
    if target != path:
        note(f"note: {path} holds a whole run, or more of one, and stays as it is; this part goes to {target}")
    return target


def _may_be_replaced(path: Path, num_kept: int) -> bool:
    if not path.is_file() or path.stat().st_size == 0:
        return True
    from foretell.checkpoints.files import read_json

    try:
        values = read_json(path)
    except ForetellError:
        return True
    samples = values.get("samples")
    size = len(samples) if isinstance(samples, list) else sum(name in values for name in EVALUATED)
    return "incomplete" in values and size <= num_kept


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """SIGTERM ends the block by an exception, and the process with status 143, once; a second one changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise Terminated(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except Terminated:
        note("error: terminated")
        raise
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)  # None: not set from Python
