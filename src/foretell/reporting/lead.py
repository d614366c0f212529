"""The results in sentences, worked out from the figures: what is fastest, and everything that is slower than plain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretell.reporting.labels import counted, made_of, ratio, ratio_spread, shares
from foretell.reporting.lead_eval import evaluated_lead
from foretell.reporting.lead_plan import planned_lead
from foretell.reporting.page import Paragraph
from foretell.reporting.proof_results import Served, Verify
from foretell.reporting.results import Bench, Results
from foretell.reporting.runs import ALL, Run

_MOST_NAMED = 10

Naming = Callable[[Run], str]


def lead(results: Results) -> list[Paragraph]:
    """One paragraph a result, and one for what loses; file names in front where there are several files."""
    served = {probe.name: probe.served for probe in results.probes if probe.served}
    told = [*results.benches, *results.compares, *results.verifies, *served, *results.evals, *results.plans]
    many = len(told) > 1
    found: list[Paragraph] = []
    for bench in results.benches:
        found += _speed(bench, bench.runs, lambda run: run.label, many)
    for compare in results.compares:
        found += _speed(compare.bench, compare.bench.runs, compare.label_of, many)
    for verify in results.verifies:
        found.append(Paragraph(f"{f'{verify.name}: ' * many}{verdict(verify)}", warns=verify.passed is not True))
    for name, figures in served.items():
        found.append(Paragraph(f"{f'{name}: ' * many}{agreement(figures)}", warns=disagrees(figures) is not None))
    return found + evaluated_lead(results.evals, many) + planned_lead(results.plans, many)


def agreement(served: Served) -> str:
    """``Served acceptance by depth 0.45 0.23, predicted 0.46 0.24: no stage disagrees.``"""
    first, undecided = disagrees(served), [stage.name for stage in served.stages if stage.agrees is None]
    decided = any(stage.agrees is not None for stage in served.stages)
    text = f"Served acceptance by depth {shares(served.served)}, predicted {shares(served.predicted)}: "
    if first:
        text += f"the first stage that disagrees is {first}."
    else:
        text += "no stage disagrees." if decided else "no stage was decided."
    return text + (f" Undecided: {', '.join(undecided)}." if undecided else "")


def disagrees(served: Served) -> str | None:
    """The first stage that disagrees, by the stages themselves where the file does not name it."""
    return served.first_disagreement or next((s.name for s in served.stages if s.agrees is False), None)


def verdict(verify: Verify) -> str:
    """``PASSED: 288 of 288 texts equal plain decoding's.``"""
    word = {True: "PASSED", False: "FAILED", None: "verdict missing"}[verify.passed]
    parts = []
    if verify.num_texts is not None:
        num_equal = max(0, verify.num_texts - len(verify.differences))
        parts.append(f"{num_equal:,} of {verify.num_texts:,} texts equal plain decoding's")
    if verify.batch_texts is not None:
        num_equal = max(0, verify.batch_texts - len(verify.batch_differences))
        parts.append(f"{num_equal:,} of {verify.batch_texts:,} texts in a batch equal their single runs")
    if verify.controls:
        num_passed = sum(control.passed is True for control in verify.controls)
        parts.append(f"{num_passed} of {len(verify.controls)} controls as expected")
    if verify.model_laws:
        num_passed = sum(law.passed is True for law in verify.model_laws)
        parts.append(f"{num_passed} of {len(verify.model_laws)} sampling laws of the model as expected")
    if verify.laws:
        num_passed = sum(law.passed is True for law in verify.laws)
        parts.append(f"{num_passed} of {len(verify.laws)} sampling laws as expected")
    return f"Verify {word}{': ' * bool(parts)}{'; '.join(parts)}."


def measured(runs: Sequence[Run]) -> list[Run]:
    """Runs with a speed-up that is a result: not plain decoding itself, and a single domain not twice."""
    domains = {run.domain for run in runs} - {ALL}
    shown = [run for run in runs if run.domain == ALL or len(domains) > 1 or ALL not in {r.domain for r in runs}]
    return [run for run in shown if run.drafts and run.speedup]


def _speed(bench: Bench, runs: Sequence[Run], name: Naming, many: bool) -> list[Paragraph]:
    front = f"{bench.name}: " if many else ""
    count = made_of(bench.stopped)
    stopped = f"Stopped{f' after {count}' if count else ' early'}. " if bench.incomplete else ""
    found = measured(runs)
    best = max((run for run in found if run.domain == ALL), key=_median, default=None)
    if best is None or best.speedup is None:
        return [Paragraph(f"{front}{stopped}No speed-up over all prompts was measured.", warns=True)]
    where = f"{name(best)} at batch {best.batch}"
    lost = sorted((run for run in found if _median(run) < 1), key=_median)
    if _median(best) <= 1:
        text = f"Drafting does not pay here: the best, {where}, runs at {ratio_spread(best.speedup)} of plain decoding."
    else:
        text = f"Fastest is {where}: {ratio_spread(best.speedup)} plain decoding, over all prompts."
    tails = sum(run.speedup is not None and run.speedup.low < 1 for run in found)
    if tails:
        text += f" In {tails} of {counted(len(found), 'setting')} the 10th percentile lies below 1."
    lines = [Paragraph(front + stopped + text)]
    if not lost:
        lines.append(Paragraph(f"{front}No median is below plain decoding's."))
        return lines
    named = ", ".join(
        f"{name(run)} at batch {run.batch}{f' on {run.domain}' if run.domain != ALL else ''} ({ratio(_median(run))}x)"
        for run in lost[:_MOST_NAMED]
    )
    more = f", and {len(lost) - _MOST_NAMED} more in the table below" if len(lost) > _MOST_NAMED else ""
    lines.append(
        Paragraph(
            f"{front}Slower than plain decoding in {len(lost)} of {counted(len(found), 'setting')}: {named}{more}.",
            warns=True,
        )
    )
    return lines


def _median(run: Run) -> float:
    return run.speedup.median if run.speedup else 0.0
