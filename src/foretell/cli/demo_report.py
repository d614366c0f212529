"""What the demo prints: an example text by origin, whether texts were equal, the speeds, and where to go next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from foretell.analysis.bench_report import BenchReport
from foretell.analysis.summary import ALL, RunSummary
from foretell.analysis.texts import BenchPrompt
from foretell.cli.bench_table import number, spread
from foretell.cli.options import DepthChoice
from foretell.cli.origins import marked, pieces
from foretell.cli.output import counted
from foretell.models.mtp_model import MTPModel

_SHOWN_CHARACTERS = 300


def print_demo(
    console: Console,
    loaded: MTPModel,
    prompts: Sequence[BenchPrompt],
    report: BenchReport,
    where: dict[str, Any],
    next_steps: Sequence[str],
) -> None:
    """The whole report."""
    depth = next(record.depth for record in report.records if not record.is_plain)
    _print_example(console, loaded.tokenizer, prompts[0], report, depth)
    _say(console, "", equality_line(report))
    _print_table(console, report, depth)
    _say(console, *_conclusion(report, depth), _machine(where), "", "Next:", *next_steps)


def equality_line(report: BenchReport) -> str:
    """``Text unchanged: yes (6 of 6 prompts, 384 tokens)``, or what differs and why."""
    plain = {r.prompt: r.sample.token_ids for r in report.records if r.is_plain}
    num_equal = len(plain) - len({d.prompt for d in report.differences})
    counts = f"({num_equal} of {counted(len(plain), 'prompt')}, {counted(sum(map(len, plain.values())), 'token')})"
    if not report.differences:
        return f"Text unchanged: yes {counts}"
    if not report.passed:
        return f"Text unchanged: NO {counts}. This is a bug; foretell verify shows where it begins."
    gap = max(d.gap for d in report.differences)
    return (
        f"Text unchanged: yes up to rounding {counts}. Elsewhere the two likeliest tokens nearly tie "
        f"(logit gap at most {gap:.3f}), and rounding decides between them; --dtype float32 rounds finer."
    )


def _print_example(
    console: Console, tokenizer: Any, prompt: BenchPrompt, report: BenchReport, depth: DepthChoice
) -> None:
    done = next(r.sample.completion for r in report.records if r.depth == depth and r.prompt == 0)
    if done is None or tokenizer is None:
        return
    colour = console.is_terminal and console.color_system is not None
    shown = prompt.text if len(prompt.text) <= _SHOWN_CHARACTERS else f"... {prompt.text[-_SHOWN_CHARACTERS:]}"
    _say(console, "", f"Prompt ({prompt.domain}): {shown}", "")
    console.print(marked(pieces(tokenizer, done.token_ids, done.origins), colour), soft_wrap=True)
    num_tokens, mark = len(done.token_ids), "green" if colour else "in ‹ ›"
    _say(
        console,
        "",
        f"{done.stats.num_accepted_tokens} of {num_tokens} tokens ({mark}) were guessed by the heads and confirmed by "
        f"the model: {done.num_rounds} passes instead of {num_tokens}.",
    )


def _print_table(console: Console, report: BenchReport, depth: DepthChoice) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = ("prompts", "plain tok/s", f"depth {depth} tok/s", "speed-up", "tok/pass", "acceptance by depth")
    for name in names:
        table.add_column(name, justify="left" if name in ("prompts", "acceptance by depth") else "right")
    for run in (r for r in report.runs if r.depth == depth):
        plain = next(r for r in report.runs if r.depth == 0 and r.domain == run.domain)
        table.add_row(
            run.domain,
            *(f"{r.decode_tokens_per_s.median:.1f}" if r.decode_tokens_per_s else "n/a" for r in (plain, run)),
            spread(run.speedup, 2, "x"),
            number(run.mean_acceptance_length, 2),
            " ".join(f"{rate:.2f}" for rate in run.acceptance_by_depth),
        )
    console.print()
    console.print(table)


def _conclusion(report: BenchReport, depth: DepthChoice) -> list[str]:
    run: RunSummary = next(r for r in report.runs if r.depth == depth and r.domain == ALL)
    if run.speedup is None:
        return ["", "The texts were too short to measure a speed."]
    median = run.speedup.median
    if median >= 1:
        return [
            "",
            f"With multi-token prediction this machine writes {median:.2f}x as fast "
            "(median; in brackets the 10th and 90th percentile).",
        ]
    slower = f"Multi-token prediction is SLOWER here: {median:.2f}x. "
    if depth == "auto":
        return ["", f"{slower}Is the machine busy with something else?"]
    return [
        "",
        f"{slower}Drafting and a pass over {depth + 1} tokens cost {number(run.round_cost, 2)} plain passes "
        f"and give {number(run.mean_acceptance_length, 2)} tokens. "
        "Is the machine busy with something else?",
    ]


def _machine(where: dict[str, Any]) -> str:
    machine = f"{where['cpu']}, {counted(where['cores'], 'core')}, {where['dtype']}, torch {where['torch']}"
    return f"{machine}, batch 1, greedy, prefill left out."


def _say(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=True)
