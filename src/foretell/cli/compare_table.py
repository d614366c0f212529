"""How a comparison looks: a table a batch size, all prompts and then every domain, and what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from foretell.analysis.contenders import PLAIN
from foretell.analysis.summary import ALL
from foretell.cli.bench_stop import unfinished
from foretell.cli.bench_table import number, rates, spread
from foretell.cli.output import counted

if TYPE_CHECKING:
    from rich.console import Console

    from foretell.analysis.compare import ComparedRun, Comparison

_LEFT = ("domain", "system", "acceptance by depth")


def print_comparison(console: Console, comparison: Comparison, where: dict[str, Any], repeats: int) -> None:
    """The table, the best system of all prompts and of each domain, where drafting loses, and unlike texts."""
    runs = _shown(comparison.runs)
    sizes = {e.contender.name: e.contender.parameters for e, _ in comparison.reports if e.contender}
    rows = [_cells(compared, sizes) for compared in runs]
    at = "one request at a time" if comparison.batch == 1 else f"{comparison.batch} requests at a time"
    table = Table(box=None, pad_edge=False, header_style="bold", title=at, title_justify="left")
    for name in rows[0]:
        table.add_column(name, justify="left" if name in _LEFT else "right")
    for i, (compared, cells) in enumerate(zip(runs, rows, strict=True)):
        last = i + 1 == len(rows) or runs[i + 1].run.domain != compared.run.domain
        table.add_row(*cells.values(), end_section=last)
    console.print(table)
    console.print()
    for line in conclusions(comparison, where, repeats):
        console.print(line, markup=False, soft_wrap=True)


def conclusions(comparison: Comparison, where: dict[str, Any], repeats: int) -> list[str]:
    """Sentences below the table."""
    lines = [_best(comparison, domain) for domain in dict.fromkeys(c.run.domain for c in _shown(comparison.runs))]
    losing = [c for c in comparison.runs if c.run.domain == ALL and c.run.speedup and c.run.speedup.median < 1]
    if losing:
        names = ", ".join(f"{c.name} at depth {c.run.setting.label}" for c in losing)
        lines.append(f"Slower than plain decoding: {names}.")
    for entry, report in comparison.reports:
        differing = len(report.differences)
        if differing:
            verdict = "all near ties" if report.passed else "NOT all near ties: run foretell verify"
            lines.append(f"{entry.name}: {differing} texts differ from plain decoding, {verdict}.")
    if comparison.reports and not any(report.differences for _, report in comparison.reports):
        lines.append("All texts are plain decoding's.")
    lines += unfinished(comparison)
    if load := where.get("load", {}).get("note"):
        lines.append(f"NOT QUIET: {load}.")
    lines.append(
        "Tokens/pass: of all passes; drafted: those with a draft. Acceptance by depth: accepted up to there, over "
        "passes with a draft so deep. ms/token: a request's own, median and 95th percentile. Draft overhead: seconds "
        "of drafting over those of the rest of a step."
    )
    times = "once" if repeats == 1 else f"{repeats} times"
    lines.append(
        f"{where['cpu']}, {counted(where['threads'], 'thread')}, {where['dtype']}, torch {where['torch']}, commit "
        f"{where['commit']}; greedy, every prompt {times} with each; speed-up: the median of ratios to plain decoding "
        f"on the same {'prompt, prefill left out' if comparison.batch == 1 else 'group of prompts, prompts included'}."
    )
    return lines


def _best(comparison: Comparison, domain: str) -> str:
    names = dict.fromkeys(c.name for c in comparison.runs if c.name != PLAIN)
    found = [best for name in names if (best := comparison.best(name, domain))]
    if not found:
        return f"No speed-up was measured on {domain}: texts of one token take no step; give other prompts."
    best = max(found, key=lambda c: c.run.speedup.median if c.run.speedup else 0.0)
    if best.run.speedup is None or best.run.speedup.median <= 1:
        return (
            f"Best on {domain} at batch {comparison.batch}: plain decoding; next is {best.name} at depth "
            f"{best.run.setting.label}, {spread(best.run.speedup, 2, 'x')}."
        )
    return (
        f"Best on {domain} at batch {comparison.batch}: {best.name} at depth {best.run.setting.label}, "
        f"{spread(best.run.speedup, 2, 'x')}."
    )


def _shown(runs: list[ComparedRun]) -> list[ComparedRun]:
    """Domain by domain; of a single domain once, since "all" is the same."""
    domains = list(dict.fromkeys(c.run.domain for c in runs))
    wanted = domains if len(domains) > 2 else domains[:1]
    return [c for domain in wanted for c in runs if c.run.domain == domain]


def _cells(compared: ComparedRun, sizes: dict[str, int]) -> dict[str, str]:
    run, time = compared.run, compared.token_ms
    size = sizes.get(compared.name, 0)
    return {
        "domain": run.domain,
        "system": compared.name,
        "depth": run.setting.label,
        "tokens/s": spread(run.decode_tokens_per_s, 1),
        "ms/token": "n/a" if time is None else f"{time.median:.3g}, {time.p95:.3g}",
        "speed-up": spread(run.speedup, 2, "x"),
        "tokens/pass": number(run.tokens_per_pass, 2),
        "drafted": "" if run.depth == 0 or run.share_drafted is None else f"{run.share_drafted:.0%}",
        "acceptance by depth": rates(run.acceptance_by_depth),
        "draft overhead": "" if not compared.draft_overhead or run.depth == 0 else f"{compared.draft_overhead:.0%}",
        "extra parameters": f"{size / 1e6:.1f} M" if size else "",
        "extra memory": f"{run.extra_memory_bytes / 2**20:.0f} MiB" if run.extra_memory_bytes else "",
    }
