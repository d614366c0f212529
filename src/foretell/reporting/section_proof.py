"""Sections: whether texts were unchanged: the verdict of verify, and where texts of any file parted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from foretell.reporting.labels import number
from foretell.reporting.lead import verdict
from foretell.reporting.listed import MOST_LISTED, listed
from foretell.reporting.page import ABSENT, Block, Paragraph, Section, Table
from foretell.reporting.proof_results import Verify
from foretell.reporting.results import Bench, Results
from foretell.reporting.section_checks import controls, laws, model_laws, reasons


def verified(verifies: Sequence[Verify]) -> list[Section]:
    """Verdict, what was compared, differences, controls and sampling laws, a file after another."""
    blocks: list[Block] = []
    for verify in verifies:
        blocks.append(Paragraph(f"{verify.name}: {verdict(verify)}", warns=verify.passed is not True))
        if verify.has_greedy:
            blocks.append(Paragraph(_compared(verify)))
        blocks += [Paragraph(f"{verify.name}: {reason}", warns=True) for reason in reasons(verify)]
        blocks += listed(verify.name, [*verify.differences, *verify.batch_differences])
        blocks += [*controls(verify), *model_laws(verify), *laws(verify)]
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
        blocks += listed(bench.name, bench.differences)
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
    blocks += [Paragraph(f"{bench.name}: {text}", warns=True) for bench in benches for text in bench.warnings]
    blocks += [Paragraph(f"{one.name}: {text}", warns=True) for one in results.evals for text in one.warnings]
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
