"""Code out of a Markdown page: foretell and make command lines, shell blocks, Python blocks, TOML blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["foretell", "make", "shell", "python", "toml"]

_FENCE = re.compile(r" {0,3}(```+|~~~+)\s*(\w*)")
_INLINE = re.compile(r"`((?:foretell|make) [^`]+)`")
_FIRST_LINE = {"python": re.compile(r"(import|from) \w"), "toml": re.compile(r"\w+ = |\[\w+\]$")}


@dataclass(frozen=True)
class Snippet:
    """``line`` is where it begins, from 1; ``runs`` is False for code within a sentence, which may be abridged."""

    kind: Kind
    line: int
    text: str
    runs: bool = True


def snippets(page: Path) -> list[Snippet]:
    """Everything on the page that has to be true, in order."""
    found: list[Snippet] = []
    for language, line, text in _blocks(page.read_text(encoding="utf-8").splitlines()):
        if language == "prose":
            found += [Snippet(_kind_of(code), line, code, runs=False) for code in _INLINE.findall(text)]
        elif (kind := _block_kind(language, text)) is not None:
            found.append(Snippet(kind, line, text))
        else:
            found += _command_lines(line, text)
    return found


def _command_lines(first: int, text: str) -> Iterator[Snippet]:
    """Lines that call foretell or make, those that end in a backslash joined with the next."""
    joined = ""
    for number, row in enumerate(text.splitlines(), start=first):
        joined += row.strip().removeprefix("$ ")
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        if re.match(r"(foretell|make)\b", joined):
            yield Snippet(_kind_of(joined), number, joined)
        joined = ""


def _kind_of(command: str) -> Kind:
    return "make" if command.startswith("make") else "foretell"


def commands(shell: Snippet) -> list[Snippet]:
    """The foretell and make lines of a shell block, without what starts them in the background."""
    text = re.sub(r"^\w+=\S+ (?=foretell)|\s*&$", "", shell.text, flags=re.MULTILINE)
    return list(_command_lines(shell.line, text))


def _block_kind(language: str, text: str) -> Literal["shell", "python", "toml"] | None:
    """A bash block is one script where it has more than lines of ours: the background, a pipe, curl."""
    if language == "bash" and re.search(r"&$|\| foretell |^curl ", text, re.MULTILINE):
        return "shell"
    kinds: tuple[Literal["python", "toml"], ...] = ("python", "toml")
    return next((k for k in kinds if language == k or not language and _FIRST_LINE[k].match(text)), None)


def _blocks(lines: list[str]) -> Iterator[tuple[str, int, str]]:
    """(language, first line, text): "prose" for a line of text, "" for a block that names no language."""
    i = 0
    while i < len(lines):
        start = i
        if fence := _FENCE.match(lines[i]):
            while i + 1 < len(lines) and not lines[i + 1].strip().startswith(fence[1]):
                i += 1
            yield fence[2], start + 2, "\n".join(lines[start + 1 : i + 1])
            i += 2
        elif lines[i].startswith("    ") and (i == 0 or not lines[i - 1].strip()):
            while i < len(lines) and (lines[i].startswith("    ") or not lines[i].strip()):
                i += 1
            yield "", start + 1, "\n".join(row[4:] for row in lines[start:i]).rstrip()
        else:
            yield "prose", i + 1, lines[i]
            i += 1
