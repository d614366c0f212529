"""Other processes on the cores during a measurement: told at once, or its end with ``--on-busy abort``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from foretell.analysis.load import HARM
from foretell.analysis.load_watch import LoadWatch
from foretell.cli.output import note
from foretell.errors import ForetellError

if TYPE_CHECKING:
    from rich.progress import Progress

OnBusyChoice = Literal["flag", "abort"]
OnBusy = Annotated[
    OnBusyChoice,
    Parameter(
        help="Where other processes take the cores meanwhile: flag says so at once and goes on, abort ends with exit "
        "code 1 and keeps what was measured."
    ),
]


class Busy(ForetellError):
    """Other processes took the cores, and the run was to end then."""


class BusyWatch(LoadWatch):
    """Looks at the cores while the block runs, and says what it sees as ``on_busy`` asks; nothing where that is None,
    for what no clock is part of. ``harm``: what others do to the figures.
    """

    def __init__(self, on_busy: OnBusyChoice | None, harm: str = HARM) -> None:
        super().__init__(self._tell, harm=harm)
        self._choice = on_busy

    def shown(self, bar: Progress, what: str) -> Callable[[int, int], None]:
        """``on_progress(done, total)`` of a new task on the bar. Raises Busy, as ``check`` does."""
        task = bar.add_task(what, total=None)

        def on_progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)
            self.check()

        return on_progress

    def check(self) -> None:
        """Raise Busy where a look has found others, and the run was to end then."""
        if self.busy and self._choice == "abort":
            raise _busy(self.busy)

    def check_all(self, load: dict[str, Any]) -> None:
        """The same at the end, where no look, or the last one, had seen what the report on the whole block notes."""
        if load["note"] and self._choice == "abort":
            raise _busy(load["note"])

    def _tell(self, sentence: str) -> None:
        if self._choice == "flag":  # otherwise it is the error's
            note(f"warning: {sentence}: {self.harm}; --on-busy abort would end here")


def _busy(why: str) -> Busy:
    return Busy(f"--on-busy abort: {why}; run it again on a quiet machine")
