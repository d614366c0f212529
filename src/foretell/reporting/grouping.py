"""Which bench files may share a figure: those that measured the same thing on the same machine at other batch sizes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from foretell.reporting.results import Bench

MAY_DIFFER = ("--batch", "--num-prompts", "--max-tokens", "--repeats", "--json", "--reference")
"""Options of bench that leave open what is measured: how often, how long, and beside what else."""
_SAME_MACHINE = ("cpu", "gpu", "cores", "threads", "dtype", "torch", "transformers", "foretell")


def together(benches: Sequence[Bench]) -> list[list[Bench]]:
    """Files side by side, each with those that came later and belong to it.

    Two belong together where machine, versions and command are the same (but for ``MAY_DIFFER``) and no batch size is
    in both: a second measurement of one batch size is another result, not a part of the first.
    """
    groups: list[list[Bench]] = []
    for bench in benches:
        for group in groups:
            if all(_belong(bench, other) for other in group):
                group.append(bench)
                break
        else:
            groups.append([bench])
    return groups


def unlike(group: Sequence[Bench]) -> str | None:
    """One sentence on what differs among files that share a figure; None for one file."""
    if len(group) < 2:
        return None
    options = [_options(bench.command or "") for bench in group]
    parts = []
    for name in MAY_DIFFER[1:]:
        if name != "--json" and len({found.get(name) for found in options}) > 1:
            values = " / ".join("default" if (value := found.get(name)) is None else value or "on" for found in options)
            parts.append(f"{name} {values}")
    dates = [bench.environment.get("date", "-") for bench in group]
    return f"The files in this figure were measured one after another ({' / '.join(dates)})" + (
        f" and differ in {', '.join(parts)}." if parts else "."
    )


def _belong(one: Bench, other: Bench) -> bool:
    if one.command is None or other.command is None or {r.batch for r in one.runs} & {r.batch for r in other.runs}:
        return False
    if any(one.environment.get(key) != other.environment.get(key) for key in _SAME_MACHINE):
        return False
    first, second = (
        {name: value for name, value in _options(bench.command or "").items() if name not in MAY_DIFFER}
        for bench in (one, other)
    )
    return first == second


def _options(command: str) -> dict[str, str]:
    """Option -> its values in one text; words in front of the first option under the name ""."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that is never closed
        words = command.split()
    found: dict[str, list[str]] = {"": []}
    name = ""
    for word in words:
        if re.match(r"--\w", word):
            name, sign, value = word.partition("=")
            found[name] = [value] if sign else []
        else:
            found[name].append(word)
    return {name: " ".join(values) for name, values in found.items()}
