"""Progress on stderr: a bar on a terminal, a line now and then where a log or a pipe reads along."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from foretell.cli.output import note

_NOTE_EVERY_S = 30.0


class ProgressOrNotes(Progress):
    """A bar that is gone when done; without a terminal, one line every half minute instead."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        console = Console(stderr=True)
        super().__init__(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._noted_at = time.monotonic()

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """See rich; the line has the task's description and how much of it is done."""
        super().update(task_id, **changes)
        if not self.disable or time.monotonic() - self._noted_at < _NOTE_EVERY_S:
            return
        self._noted_at = time.monotonic()
        task = next(task for task in self.tasks if task.id == task_id)
        of_total = "" if task.total is None else f" of {task.total:,.0f}"
        note(f"{task.description}: {task.completed:,.0f}{of_total} ...")
