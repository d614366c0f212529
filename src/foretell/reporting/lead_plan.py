"""Plan files in sentences: what is foretold, and how far that is from what a bench file measured."""

from __future__ import annotations

from collections.abc import Sequence

from foretell.reporting.labels import change, counted, ratio
from foretell.reporting.page import Paragraph
from foretell.reporting.plan_results import Beside, PlanFile, Planned
from foretell.reporting.plan_words import follows, too_much

COSTS = {"step_costs": "the file's own step costs", "hardware": "the machine of the plan"}
"""Where a prediction beside a bench file comes from, in words."""
_MOST_NAMED = 10


def planned_lead(plans: Sequence[PlanFile], many: bool) -> list[Paragraph]:
    """A paragraph a plan, and two a comparison with a bench file; ``many``: file names in front."""
    found = []
    for plan in plans:
        front = f"{plan.name}: " if many else ""
        if plan.planned is not None:
            found.append(Paragraph(front + foretold(plan.planned)))
        for source, rows in plan.beside.items():
            if text := errors(rows):
                found.append(
                    Paragraph(f"{front}{plan.bench or 'A bench file'}, predicted from {COSTS[source]}: {text}")
                )
            found += [Paragraph(f"{front}{text}", warns=True) for text in _missed(rows, source)]
    return found


def foretold(plan: Planned) -> str:
    """``Planned for deepseek-v3 on 8 x H200 SXM at batch 1: best depth 1, 1.12x plain decoding. ...``"""
    at = "an unknown batch size" if plan.batch is None else f"batch {plan.batch:,}"
    front = f"Planned, not measured: {plan.model} on {plan.machine} at {at}: "
    best, room = plan.best, too_much(plan.max_batch, plan.weights_fit, plan.batch, plan.context)
    if best is None:
        return front + " ".join(["no acceptance was given, so there is no speed-up.", *room])
    known = (plan.break_even_batch, plan.searched_batch, plan.max_batch)
    return front + " ".join([*follows(best.depth, best.speedup, *known), *room])


def errors(rows: Sequence[Beside]) -> str:
    """``tokens/s are off by -33.8 % at most (batch 1, depth 1), 20.2 % in the mean of 6 settings.``"""
    known = [(row, row.error) for row in rows if row.error is not None]
    if not known:
        return ""
    worst, error = max(known, key=lambda pair: abs(pair[1]))
    mean = sum(abs(error) for _, error in known) / len(known)
    of = counted(len(known), "setting")
    return f"tokens/s are off by {change(error)} at most ({worst.label}), {100 * mean:,.1f} % in the mean of {of}."


def _missed(rows: Sequence[Beside], source: str) -> list[str]:
    """Batch sizes at which the setting predicted best is not the one measured best."""
    found = []
    for batch in sorted({row.batch for row in rows}):
        own = [row for row in rows if row.batch == batch]
        predicted = [(row.predicted_speedup, row) for row in own if row.predicted_speedup is not None]
        measured = [(row.measured_speedup, row) for row in own if row.measured_speedup is not None]
        if len(predicted) < len(own) or len(measured) < len(own) or len(own) < 2:
            continue
        (_, first), (top, fastest) = max(predicted, key=lambda p: p[0]), max(measured, key=lambda p: p[0])
        if first.measured_speedup is not None and first.measured_speedup < top:
            found.append(
                f"at batch {batch} {_setting(first)} was predicted best, which ran at "
                f"{ratio(first.measured_speedup)}x; {_setting(fastest)} ran at {ratio(top)}x"
            )
    if not found:
        return []
    more = f"; and {len(found) - _MOST_NAMED} more batch sizes" if len(found) > _MOST_NAMED else ""
    return [f"From {COSTS[source]} the best was missed: {'; '.join(found[:_MOST_NAMED])}{more}."]


def _setting(row: Beside) -> str:
    return row.label.partition(", ")[2]
