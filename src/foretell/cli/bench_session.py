"""One batch size after the other, measured and kept: what ``bench`` and ``compare`` have in common.

Whatever ends a run early (Ctrl-C, SIGTERM, an error, a busy machine with ``--on-busy abort``), what was measured up to
then is printed and written, marked as incomplete.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from foretell.cli.bench_stop import NOTHING_MEASURED, Report, part_target, sigterm_raises, stopped_line
from foretell.cli.busy import BusyWatch, OnBusyChoice
from foretell.cli.output import note, progress, results, write_json

if TYPE_CHECKING:
    from foretell.analysis.texts import BenchPrompt
    from foretell.models.trunk import Trunk

OnProgress = Callable[[int, int], None]
R = TypeVar("R", bound=Report)


@dataclass
class Session(Generic[R]):
    """``measure(rows, on_progress, on_stop)`` gives a batch size's report, or hands what it has to ``on_stop`` and
    raises; ``show(report, where)`` prints one; ``values(reports)`` are their plain values. ``warnings``: what is known
    of the measurement before it starts; ``written``: the file that holds it after.
    """

    trunk: Trunk
    prompts: Sequence[BenchPrompt]
    measure: Callable[[int, OnProgress, Callable[[R], None]], R]
    show: Callable[[R, dict[str, Any]], None]
    values: Callable[[list[R]], dict[str, Any]]
    on_busy: OnBusyChoice
    warnings: Sequence[str] = ()
    reports: list[R] = field(default_factory=list)
    written: Path | None = None

    def run(self, batches: Sequence[int], json: Path | None) -> None:
        """Measure every batch size, and print and write them all, or those that were measured before an exception.

        Raises Busy where ``on_busy`` says so.
        """
        from foretell.analysis.environment import environment
        from foretell.evaluation.nll import mean_nll

        where = environment(self.trunk.dtype_name, shlex.join(["foretell", *sys.argv[1:]]))
        watch, complete, prompt_nll = BusyWatch(self.on_busy), False, None
        with sigterm_raises():
            try:
                # First, so that a run that is stopped has nothing long to do until its file is written.
                prompt_nll = mean_nll(self.trunk, [prompt.token_ids for prompt in self.prompts])
                with watch:
                    for rows in batches:
                        self._measure(rows, watch)
                complete = True
            finally:
                where["load"] = watch.report()
                self._keep(where, json, complete, prompt_nll)
        watch.check_all(where["load"])

    def _measure(self, rows: int, watch: BusyWatch) -> None:
        with progress() as bar:
            shown = watch.shown(bar, "texts decoded" if rows == 1 else f"groups decoded, {rows} at a time")
            self.reports.append(self.measure(rows, shown, self.reports.append))

    def _keep(self, where: dict[str, Any], json: Path | None, complete: bool, prompt_nll: float | None) -> None:
        from foretell.analysis.meaning import meaningless

        kept = [report for report in self.reports if report.records]
        for report in kept:
            if report.num_planned is not None:
                note(stopped_line(report, json))
        if not kept:
            if not complete:
                note(NOTHING_MEASURED)
            return
        token_ids = [prompt.token_ids for prompt in self.prompts]
        against = meaningless(token_ids, kept[0].outputs(), prompt_nll, self.trunk.vocab_size, eos_ignored=False)
        for reason in against:
            note(f"warning: {reason}")
        load = [where["load"]["note"]] if where["load"]["note"] else []
        head = {"environment": where, "model": self.trunk.name}
        values = {**head, "warnings": [*self.warnings, *against, *load], **self.values(kept)}
        target = json if complete else part_target(json, sum(len(report.records) for report in kept))
        write_json(target, values if complete else {"incomplete": True, **values})  # first: a pipe may be closed
        self.written = target
        shown = [report for report in self.reports if report.runs]
        for place, report in enumerate(shown):
            if place:
                results().print()
            self.show(report, where)
