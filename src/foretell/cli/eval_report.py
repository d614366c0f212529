"""What ``foretell eval`` prints, from the values that its report holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def print_text(console: Console, found: Mapping[str, Any]) -> None:
    """A line a file, a table of depths where there are heads, and what was counted."""
    files = found["files"]
    shown = files if len(files) == 1 else [*files, found["all"]]
    rows = [[f["file"], f"{f['num_bytes']:,}", f"{f['num_tokens']:,}", _bits(f["depths"][0])] for f in shown]
    _table(console, ["text", "bytes", "tokens", "bits per byte"], rows)
    if len(found["all"]["depths"]) > 1:
        console.print()
        _table(
            console, ["depth", "tokens", "in draft vocabulary", "bits per token", "bits per byte"], _depth_rows(found)
        )
    _line(
        console,
        f"Windows of {found['window']:,} tokens, stride {found['stride']:,}: every token is scored once, past the "
        f"first window with at least {found['window'] - found['stride']:,} tokens before it.",
    )
    if any(_uncovered(depth) for depth in found["all"]["depths"]):
        _line(
            console,
            "Tokens outside the heads' draft vocabulary have no probability there: bits per token are those of the "
            "others, and bits per byte are infinite.",
        )


def print_tasks(console: Console, found: Mapping[str, Any]) -> None:
    """A line a task and metric, groups behind the tasks, as in lm-eval's table; then a line a task that generated."""
    rows = []
    for part in ("results", "groups"):
        for name, values in (found[part] or {}).items():
            if part == "results" or name not in found["results"]:
                rows += _score_rows(name, values, found)
    _table(console, ["task", "version", "examples", "filter", "metric", "better", "value", "std. error"], rows)
    console.print()
    print_speculation(console, found["speculation"])


def print_parse(console: Console, found: Mapping[str, Any]) -> None:
    """The share that parses and what the rest is."""
    judged = found["num_outputs"] - found["num_cut_off"]
    _line(
        console,
        f"{found['language']}: {found['num_parsed']} of {judged} answers parse ({_number(found['share'], 3)}); "
        f"{found['num_failed']} do not, {found['num_empty']} are empty; {found['num_cut_off']} more were cut off "
        f"{_cause(found)}and are not judged.",
    )
    print_speculation(console, [found["speculation"]])


def _cause(found: Mapping[str, Any]) -> str:
    """What cut answers off."""
    num_full = found["num_context_full"]
    if not num_full:
        return f"at {found['max_tokens']} tokens "
    if num_full == found["num_cut_off"]:
        return "by the end of the context "
    return f"({found['num_cut_off'] - num_full} at {found['max_tokens']} tokens, {num_full} by the end of the context) "


def print_speculation(console: Console, spent: Sequence[Mapping[str, Any]]) -> None:
    """A line a task: how much was decoded, how fast, and how much of the drafts was accepted."""
    rows = []
    for one in spent:
        accepted = " ".join(f"{rate:.2f}" for rate in one["acceptance_by_depth"]) or "n/a"
        length, speed = _number(one["mean_acceptance_length"], 2), _number(one["tokens_per_s"], 1)
        rows.append([one["name"], f"{one['num_requests']:,}", f"{one['num_tokens']:,}", speed, length, accepted])
    if rows:
        _table(console, ["decoded", "answers", "tokens", "tokens/s", "tokens/pass", "acceptance by depth"], rows)


def _score_rows(name: str, values: Mapping[str, Any], found: Mapping[str, Any]) -> list[list[str]]:
    """lm-eval names a value "metric,filter", and its standard error "metric_stderr,filter"."""
    rows = []
    for key, value in values.items():
        metric, comma, taken = key.partition(",")
        if not comma or metric.endswith("_stderr"):
            continue
        error = values.get(f"{metric}_stderr,{taken}")
        better = {True: "higher", False: "lower"}.get((found["higher_is_better"] or {}).get(name, {}).get(metric), "")
        version, examples = ((found[part] or {}).get(name, "") for part in ("versions", "n-shot"))
        rows.append([name, str(version), str(examples), taken, metric, better, _score(value), _score(error)])
    return rows


def _score(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "n/a" if value is None else str(value)


def _depth_rows(found: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for depth in found["all"]["depths"]:
        label = "0 (trunk)" if depth["depth"] == 0 else str(depth["depth"])
        bits = _bits(depth) if depth["num_targets"] == 0 or not _uncovered(depth) else "infinite"
        coverage = "" if depth["depth"] == 0 else _number(depth["coverage"], 3)
        rows.append([label, f"{depth['num_targets']:,}", coverage, _number(depth["bits_per_token"], 3), bits])
    return rows


def _uncovered(depth: Mapping[str, Any]) -> bool:
    return depth["coverage"] is not None and depth["coverage"] < 1


def _bits(depth: Mapping[str, Any]) -> str:
    return _number(depth["bits_per_byte"], 4)


def _number(value: float | None, digits: int) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"


def _table(console: Console, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place == 0 or name == "acceptance by depth" else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
