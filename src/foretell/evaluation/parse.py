"""The share of outputs that a parser takes: Python by ``ast.parse``, JSON by ``json.loads``.

What is judged is the first fenced block that names the language; else the first that names none; else the whole text:
a chat's answer alone, or a text prompt with what it was continued with. An indented block, as in a list, loses the
indent of its fence. An output that was cut off, because it had all the tokens that it may have or because the model's
context was full, is not judged, unless its block was closed before.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from foretell.types import FinishReason

Language = Literal["python", "json"]
Outcome = Literal["parses", "fails", "empty", "cut off"]
""""empty": there is nothing to parse, which counts as a failure, though Python takes an empty file."""

MAX_TOKENS = "it had all the tokens that an answer may have"
CONTEXT_FULL = "the model's context was full"
"""What cuts an output off."""

_NAMES: dict[Language, tuple[str, ...]] = {"python": ("python", "py", "python3"), "json": ("json",)}
_FENCE = re.compile(
    r"^([ \t]*)(```+|~~~+)[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*\2[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Judged:
    """One output: what was looked at, what came of it, and what the parser said of a failure, or what cut it off."""

    outcome: Outcome
    code: str
    message: str = ""


@dataclass
class ParseReport:
    """Counts of outcomes. ``share``: of the outputs that were judged, those that parse; None where none was.

    ``num_context_full``: of those cut off, the ones that more tokens would not have helped: the context was full.
    """

    language: Language
    num_outputs: int
    num_parsed: int
    num_failed: int
    num_empty: int
    num_cut_off: int
    num_context_full: int
    share: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def judge(
    prompt: str | None, text: str, finish_reason: FinishReason, language: Language, context_full: bool = False
) -> Judged:
    """Judge one output; ``prompt`` is the text that it continues, None for the answer in a chat.

    ``context_full``: prompt and output fill the model's context.
    """
    block = _block(text, language)
    code = (prompt or "") + text if block is None else block[0]
    closed = block is not None and block[1]
    if finish_reason == "length" and not closed:
        return Judged("cut off", code, CONTEXT_FULL if context_full else MAX_TOKENS)
    if not (text if block is None else code).strip():
        return Judged("empty", code)
    message = _problem(code, language)
    return Judged("parses", code) if message is None else Judged("fails", code, message)


def report(judged: Sequence[Judged], language: Language) -> ParseReport:
    """Count the outcomes."""
    counts = Counter(one.outcome for one in judged)
    num_full = sum(one.outcome == "cut off" and one.message == CONTEXT_FULL for one in judged)
    num_judged = len(judged) - counts["cut off"]
    share = counts["parses"] / num_judged if num_judged else None
    return ParseReport(
        language, len(judged), counts["parses"], counts["fails"], counts["empty"], counts["cut off"], num_full, share
    )


def _block(text: str, language: Language) -> tuple[str, bool] | None:
    """The code of the block to judge, and whether it was closed; None without one."""
    found = [(m[3].lower(), _outdented(m[4], m[1]), not _open(m)) for m in _FENCE.finditer(text)]
    for names in (_NAMES[language], ("",)):
        for name, code, closed in found:
            if name in names:
                return code, closed
    return None


def _open(match: re.Match[str]) -> bool:
    """True where the block went on to the end of the text."""
    return match.end() == match.end(4)


def _outdented(code: str, indent: str) -> str:
    """Without the fence's own indent, which a list gives it; lines with less lose what they have (CommonMark, 4.5)."""
    if not indent:
        return code
    lines = code.splitlines(keepends=True)
    return "".join(line.removeprefix(indent) if line.startswith(indent) else line.lstrip(" \t") for line in lines)


def _problem(code: str, language: Language) -> str | None:
    try:
        if language == "json":
            json.loads(code, parse_constant=_no_constant)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # advice on the code, such as on odd escapes
                ast.parse(code)
    except (ValueError, RecursionError, MemoryError, SyntaxError) as error:
        return " ".join(f"{type(error).__name__}: {error}".split())
    return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
