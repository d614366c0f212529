"""The results in sentences, worked out from the figures: what is fastest, and everything that is slower than plain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretell.reporting.labels import counted, ratio, ratio_spread
from foretell.reporting.page import Paragraph
from foretell.reporting.results import Bench, Results, Verify
from foretell.reporting.runs import ALL, Run

_MOST_NAMED = 10

Naming = Callable[[Run], str]


def lead(results: Results) -> list[Paragraph]:
    """One paragraph a result, and one for what loses; file names in front where there are several files."""
    many = len(results.benches) + len(results.compares) + len(results.verifies) > 1
    found: list[Paragraph] = []
    for bench in results.benches:
        found += _speed(bench, bench.runs, lambda run: run.label, many)
    for compare in results.compares:
        found += _speed(compare.bench, compare.bench.runs, compare.label_of, many)
    for verify in results.verifies:
        found.append(Paragraph(f"{f'{verify.name}: ' * many}{verdict(verify)}", warns=verify.passed is not True))
    return found


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
    found = measured(runs)
    best = max((run for run in found if run.domain == ALL), key=_median, default=None)
    if best is None or best.speedup is None:
        return [Paragraph(f"{front}No speed-up over all prompts was measured.", warns=True)]
    where = f"{name(best)} at batch {best.batch}"
    lost = sorted((run for run in found if _median(run) < 1), key=_median)
    if _median(best) <= 1:
        text = f"Drafting does not pay here: the best, {where}, runs at {ratio_spread(best.speedup)} of plain decoding."
    else:
        text = f"Fastest is {where}: {ratio_spread(best.speedup)} plain decoding, over all prompts."
    tails = sum(run.speedup is not None and run.speedup.low < 1 for run in found)
    if tails:
        text += f" In {tails} of {counted(len(found), 'setting')} the 10th percentile lies below 1."
    lines = [Paragraph(front + text)]
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
