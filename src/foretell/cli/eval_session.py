"""The measurements of ``foretell eval``, one after the other: each is shown when it is finished, and then kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.cli.bench_stop import part_target, sigterm_raises
from foretell.cli.busy import BusyWatch, OnBusyChoice
from foretell.cli.output import note, progress, results, write_json

if TYPE_CHECKING:
    from rich.console import Console

Shown = Callable[[str], Callable[[int, int], None]]
"""A task's name -> its ``on_progress(done, total)``."""
Measurement = tuple[Callable[[Shown], dict[str, Any]], Callable[["Console", Mapping[str, Any]], None]]
"""What measures, and what prints that."""


def measure_all(
    measurements: Mapping[str, Measurement],
    report: dict[str, Any],
    warnings: list[str],
    on_busy: OnBusyChoice | None,
    json: Path | None,
) -> None:
    """Add each measurement to ``report`` by its name, and write it with ``warnings``. What ends the run early (Ctrl-C,
    SIGTERM, an error, Busy) goes on when the finished measurements are written, marked as incomplete.

    ``on_busy``: None where nothing is timed: scores hold on a busy machine.
    """
    watch = BusyWatch(on_busy)
    with sigterm_raises():
        try:
            with watch, progress() as bar:
                for name, (run, show) in measurements.items():
                    report[name] = run(lambda what: watch.shown(bar, what))
                    show(results(), report[name])
        finally:
            load = report["environment"]["load"] = watch.report()
            _keep(report, list(measurements), warnings, load["note"] if on_busy == "flag" else None, json)
    watch.check_all(load)


def _keep(report: dict[str, Any], names: list[str], warnings: list[str], busy: str | None, json: Path | None) -> None:
    """Nothing where nothing was finished."""
    finished = [name for name in names if name in report]
    if not finished:
        return
    for warning in [*warnings, *([busy] if busy else [])]:
        note(f"warning: {warning}")
    values = {**report, "warnings": warnings}
    if len(finished) == len(names):
        write_json(json, values)
        return
    rest, verb = " and ".join(names[len(finished) :]), "are" if len(finished) > 1 else "is"
    note(f"stopped: {rest} not measured to the end; {' and '.join(finished)} {verb} finished")
    write_json(part_target(json, len(finished)), {"incomplete": True, **values})
