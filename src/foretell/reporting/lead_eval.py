"""Eval files in sentences: one a file, and whether scores that several files share are equal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from foretell.reporting.eval_results import Eval, Score
from foretell.reporting.labels import counted, joined, number, text_count
from foretell.reporting.page import Paragraph

_MOST_NAMED = 10


def evaluated_lead(evals: Sequence[Eval], many: bool) -> list[Paragraph]:
    """A paragraph a file, then one a pair of files that asked one model the same; ``many``: file names in front."""
    found = [Paragraph(f"{f'{one.name}: ' * many}{'Stopped early. ' * one.incomplete}{summary(one)}") for one in evals]
    return found + [paragraph for pair in combinations(evals, 2) for paragraph in _shared(*pair)]


def summary(one: Eval) -> str:
    """``Bits per byte 0.8123 (2 texts); letters: exact_match 0.5000. Python: 3 of 4 answers parse.``"""
    parts = []
    if one.texts is not None:
        trunk = one.texts.whole.trunk
        size = f"{counted(len(one.texts.files), 'text')}, {text_count(one.texts.whole.num_bytes, 'byte')}"
        text = f"Bits per byte of the trunk: {number(trunk.bits_per_byte if trunk else None, 4)} ({size})"
        heads = [depth for depth in one.texts.whole.depths if depth.depth]
        shown = [f"{bits(d.bits_per_byte, d.is_infinite)} at depth {d.depth}" for d in heads[:_MOST_NAMED]]
        parts.append(text + (f"; of the heads: {', '.join(shown)}" if shown else ""))
    scores = [f"{score.task} {score.metric} {number(score.value, 4)}" for score in one.scores]
    if scores:
        more = f", and {len(scores) - _MOST_NAMED} more in the table below" if len(scores) > _MOST_NAMED else ""
        parts.append(f"Tasks: {', '.join(scores[:_MOST_NAMED])}{more}")
    if (parsed := one.parsed) is not None:
        judged = None if None in (outcomes := (parsed.num_parsed, parsed.num_failed, parsed.num_empty)) else outcomes
        total = "-" if judged is None else f"{sum(n for n in judged if n is not None):,}"
        text = f"{number(parsed.num_parsed, 0)} of {total} judged {parsed.language} answers parse"
        full = f", {parsed.num_context_full:,} of them by a full context," if parsed.num_context_full else ""
        cut = f"; {parsed.num_cut_off:,} more were cut off{full} and not judged" if parsed.num_cut_off else ""
        parts.append(text + cut)
    return f"{'. '.join(parts) or 'Nothing was evaluated'}."


def bits(value: float | None, is_infinite: bool) -> str:
    """``0.8123``, or ``infinite`` where some tokens have no probability."""
    return "infinite" if value is None and is_infinite else number(value, 4)


def _shared(one: Eval, other: Eval) -> list[Paragraph]:
    """Scores of the same questions to one model in one type of weights, such as with heads and without."""
    if one.model is None or _asked(one) != _asked(other):
        return []
    theirs = {score.key: score.value for score in other.scores}
    found = [(score, theirs.get(score.key)) for score in one.scores if score.value is not None]
    pairs = [(score, value) for score, value in found if value is not None]
    if not pairs:
        return []
    unequal = [(score, value) for score, value in pairs if score.value != value]
    front = f"{_how(one)} and {_how(other)}, both {one.model}: "
    if not unequal:
        what = "the one shared score is" if len(pairs) == 1 else f"all {len(pairs):,} shared scores are"
        return [Paragraph(f"{front}{what} equal.")]
    named = joined(_difference(score, value) for score, value in unequal[:_MOST_NAMED])
    more = f", and {len(unequal) - _MOST_NAMED} more" if len(unequal) > _MOST_NAMED else ""
    text = f"{front}{len(unequal)} of {counted(len(pairs), 'shared score')} differ: {named}{more}."
    return [Paragraph(text, warns=True)]


def _asked(one: Eval) -> tuple[str | None, str | None, bool]:
    """What else a score depends on: the model, its type of weights, and the chat template."""
    return one.model, one.where.environment.get("dtype"), "--chat" in (one.where.command or "").split()


def _how(one: Eval) -> str:
    return f"{one.name} ({'no drafts' if not one.depth else f'depth {one.depth}'})"


def _difference(score: Score, value: float) -> str:
    return f"{score.task} {score.metric} {number(score.value, 4)} and {number(value, 4)}"
