"""Sections: whether texts were unchanged: the verdict of verify, and where texts of any file parted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from foretell.reporting.labels import number
from foretell.reporting.lead import verdict
from foretell.reporting.page import ABSENT, Block, Paragraph, Section, Table
from foretell.reporting.results import Bench, Difference, Results, Verify

MOST_LISTED = 25
"""Near ties that are listed one by one; what is no near tie always is."""
_NEAR_TIE = "near tie"


def verified(verifies: Sequence[Verify]) -> list[Section]:
    """Verdict, what was compared, differences, and the sampling law, a file after another."""
    blocks: list[Block] = []
    for verify in verifies:
        blocks.append(Paragraph(f"{verify.name}: {verdict(verify)}", warns=verify.passed is not True))
        if verify.has_greedy:
            blocks.append(Paragraph(_compared(verify)))
        blocks += _listed(verify.name, [*verify.differences, *verify.batch_differences])
        if verify.laws:
            rows = [
                [law.settings or ABSENT, ABSENT if law.depth is None else str(law.depth), number(law.num_samples, 0)]
                + [number(law.total_variation, 4), number(law.limit, 4), number(law.acceptance_rate)]
                + [{True: "ok", False: "BUG", None: ABSENT}[law.passed]]
                for law in verify.laws
            ]
            columns = ["settings", "depth", "samples", "total variation", "limit", "acceptance", "verdict"]
            note = "Total variation: half the sum of differences between counted and expected shares."
            blocks.append(Table(f"Sampling law: {verify.name}", columns, rows, 2, [note]))
    return [Section("Is the text unchanged?", blocks)] if blocks else []


def warnings(benches: Sequence[Bench], results: Results) -> list[Section]:
    """What files say beside their figures: texts that parted, notes, and values that could not be used."""
    blocks: list[Block] = []
    rows = [
        [bench.name, str(batch) if batch else ABSENT, depth, verdict_, str(count)]
        for bench in benches
        for (batch, depth, verdict_), count in sorted(
            Counter((d.batch, d.depth, d.verdict) for d in bench.differences).items()
        )
    ]
    if rows:
        note = (
            "Texts of our own that parted from depth 0's. Near tie: the trunk's two best tokens were so close there "
            "that rounding decides."
        )
        blocks.append(Table("Texts that parted", ["file", "batch", "depth", "verdict", "texts"], rows, 3, [note]))
    for bench in benches:
        blocks += _listed(bench.name, bench.differences)
    rows = [
        [bench.name, str(batch), system, str(count)]
        for bench in benches
        for batch, counts in bench.unlike.items()
        for system, count in counts.items()
        if system != "foretell"
    ]
    if rows:
        note = "Other systems run other kernels, so near ties may fall otherwise: no proof of a fault in either."
        columns = ["file", "batch", "system", "texts unlike depth 0's"]
        blocks.append(Table("Texts of other systems", columns, rows, 3, [note]))
    blocks += [Paragraph(f"{bench.name}: {note}") for bench in benches for note in bench.notes]
    for name, problems in results.problems.items():
        blocks += [Paragraph(f"{name}: {problem}.", warns=True) for problem in problems[:MOST_LISTED]]
        if len(problems) > MOST_LISTED:
            blocks.append(Paragraph(f"{name}: {len(problems) - MOST_LISTED} more values not known.", warns=True))
    return [Section("Warnings and notes", blocks)] if blocks else []


def _compared(verify: Verify) -> str:
    drafts = f"depths {', '.join(verify.depths) or ABSENT}" + (
        f", trees of {verify.num_nodes}" * bool(verify.num_nodes)
    )
    text = (
        f"Greedy{', exact' * verify.exact}: {number(verify.num_prompts, 0)} prompts, {number(verify.num_tokens, 0)} "
        f"tokens, {drafts}; {number(verify.num_accepted_tokens, 0)} drafted tokens were accepted."
    )
    rows = f" In batches of {verify.batch_rows}: {number(verify.batch_texts, 0)} texts."
    text += rows if verify.batch_rows is not None else ""
    return text + " Without an accepted token this would prove little." * (verify.num_accepted_tokens == 0)


def _listed(name: str, differences: Sequence[Difference]) -> list[Block]:
    """BUGs first, then near ties as far as there is room."""
    if not differences:
        return []
    ordered = sorted(differences, key=lambda d: d.verdict == _NEAR_TIE)
    num_bugs = sum(d.verdict != _NEAR_TIE for d in ordered)
    shown = ordered[: max(num_bugs, MOST_LISTED)]
    rows = [
        [d.verdict, ABSENT if d.prompt is None else str(d.prompt), d.domain or ABSENT, str(d.batch or ABSENT), d.depth]
        + [ABSENT if d.position is None else str(d.position), repr(d.expected_text), repr(d.got_text)]
        + [ABSENT if d.gap is None else f"{d.gap:.2g}", ABSENT if d.limit is None else f"{d.limit:.2g}"]
        for d in shown
    ]
    columns = ["verdict", "prompt", "domain", "batch", "depth", "token", "expected", "got", "top-2 gap", "limit"]
    if any(d.system for d in shown):
        columns.append("system")
        rows = [[*row, d.system or ABSENT] for row, d in zip(rows, shown, strict=True)]
    notes = ["Token: place in the output, from 0. Gap: best minus second-best logit of the trunk there."]
    if len(shown) < len(ordered):
        notes.append(f"{len(ordered) - len(shown)} more near ties are in the file.")
    return [Table(f"Differences: {name}", columns, rows, 1, notes)]
