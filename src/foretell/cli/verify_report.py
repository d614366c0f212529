"""What ``foretell verify`` prints: texts compared and where they part, and the sampling law."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretell.cli.output import counted

if TYPE_CHECKING:
    from rich.console import Console

    from foretell.analysis.controls import Control
    from foretell.analysis.law import LawResult
    from foretell.analysis.lossless import Difference, EqualityReport
    from foretell.analysis.model_law import ModelLaw


def print_equality(console: Console, report: EqualityReport) -> None:
    """One line for the comparison with plain decoding, one for the batch, and one for every difference."""
    num_equal = report.num_texts - len(report.differences)
    depths = ", ".join(map(str, report.depths))
    drafts = f"depths {depths}" + (f", trees of {report.num_nodes} nodes" if report.num_nodes else "")
    lines = [
        f"greedy{', exact' if report.exact else ''}: {num_equal} of {report.num_texts} texts equal to depth 0 "
        f"({counted(report.num_prompts, 'prompt')}, {counted(report.num_tokens, 'token')}, {drafts}; "
        f"{report.num_accepted_tokens:,} drafted tokens accepted)",
        *map(_describe, report.differences),
    ]
    if (rows := report.batch) is not None:
        num_equal = rows.num_texts - len(rows.differences)
        lines += [
            f"batch of {rows.num_rows}: {num_equal} of {rows.num_texts} texts equal to their single runs "
            f"(depths 0, {depths}; drafted tokens accepted: {rows.num_accepted_tokens:,}, alone "
            f"{rows.num_accepted_alone:,})",
            *map(_describe, rows.differences),
        ]
    if not report.num_accepted_tokens:
        lines.append(
            "note: no drafted token was accepted, so this proves little; give a larger --max-tokens or --num-prompts"
        )
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _describe(d: Difference) -> str:
    excuse = f"near tie: below {d.limit:.2e}" if d.limit else "exact: nothing is excused"
    return (
        f"  {d.verdict}: prompt {d.prompt} ({d.domain}), depth {d.depth}, output token {d.position}: "
        f"expected {d.expected_token} {d.expected_text!r}, got {d.got_token} {d.got_text!r}, "
        f"top-2 gap {d.gap:.2e} ({excuse}); likely: {d.cause}"
    )


def print_law(console: Console, laws: list[LawResult]) -> None:
    """One line a setting."""
    console.print(f"sampling: total variation between the trunk's law and {laws[0].num_samples:,} sampled tokens")
    for law in laws:
        settings = " ".join(f"{name}={value:g}" for name, value in law.settings.items())
        rate = "n/a" if law.acceptance_rate is None else f"{law.acceptance_rate:.2f}"
        verdict = "ok" if law.passed else "BUG"
        nodes = f", {law.num_nodes} nodes" if law.num_nodes else ""
        console.print(
            f"  {verdict}: depth {law.depth}{nodes}, {settings}: {law.total_variation:.4f} (limit {law.limit:.3f}), "
            f"acceptance {rate}",
            markup=False,
            soft_wrap=True,
        )


_OFTEN = 0.5
_CONTROLS = {
    "right": "the text itself",
    "shifted": "each token one place too early",
    "shuffled": "the text's tokens in another order",
}


def print_controls(console: Console, controls: list[Control]) -> None:
    """One line a drafter whose acceptance is known, and its texts that differ."""
    console.print("controls: drafters that know the text, and what the meter says of them")
    for control in controls:
        rate = "n/a" if control.acceptance is None else f"{control.acceptance:.3f}"
        true = "n/a" if control.expected is None else f"{control.expected:.3f}"
        verdict = "ok" if control.passed else "BUG" if control.acceptance is not None else "NOT MEASURED"
        console.print(
            f"  {verdict}: {control.kind} ({_CONTROLS[control.kind]}): {rate} of first guesses accepted, {true} are "
            f"right, {control.num_texts - len(control.differences)} of {control.num_texts} texts equal",
            markup=False,
            soft_wrap=True,
        )
        for line in map(_describe, control.differences):
            console.print(f"  {line}", markup=False, soft_wrap=True)
    if any(c.kind != "right" and (c.expected or 0.0) > _OFTEN for c in controls):
        console.print(
            "  note: a wrong drafter is often right here, so this shows little; give texts that do not repeat"
        )
    if any(c.acceptance is None for c in controls):
        console.print("  note: nothing was drafted; give prompts with longer answers, or a larger --max-tokens")


def print_model_law(console: Console, laws: list[ModelLaw]) -> None:
    """One line a depth."""
    console.print(f"sampling: how far {laws[0].num_samples:,} tokens or so are from draws of the trunk's own law")
    for law in laws:
        nodes = f", {law.num_nodes} nodes" if law.num_nodes else ""
        rate = "n/a" if law.acceptance_rate is None else f"{law.acceptance_rate:.2f}"
        console.print(
            f"  {'ok' if law.passed else 'BUG'}: depth {law.depth}{nodes}: distance {law.distance:.4f} (limit "
            f"{law.limit:.4f}), {law.num_outside} tokens outside the law, acceptance {rate}",
            markup=False,
            soft_wrap=True,
        )
