"""A report before it has a format: sections of text, tables and figures. All is plain text; writers escape it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

ABSENT = "-"
"""Stands for what was not measured; 0 is a measurement."""


@dataclass(frozen=True)
class Paragraph:
    """A sentence or several. ``warns``: something that changes how far the figures can be trusted."""

    text: str
    warns: bool = False


@dataclass(frozen=True)
class Code:
    """A command line."""

    text: str


@dataclass(frozen=True)
class Table:
    """``rows``: as many cells as ``columns`` each. ``num_headings``: leading cells that name their row.

    ``notes``: definitions that belong below.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_headings: int = 1
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Figure:
    """``slug``: its file name and the beginning of every id in it. ``alt``: what it shows, for who cannot see it."""

    slug: str
    title: str
    alt: str
    svg: str
    notes: Sequence[str] = ()


Block = Paragraph | Code | Table | Figure


@dataclass(frozen=True)
class Section:
    """A heading and what is below it."""

    title: str
    blocks: Sequence[Block]

    @property
    def slug(self) -> str:
        """The heading as an id."""
        return slug(self.title)


@dataclass(frozen=True)
class Page:
    """``lead``: the results in sentences, each true by the data."""

    title: str
    lead: Sequence[Paragraph]
    sections: Sequence[Section]
    version: str

    @property
    def figures(self) -> list[Figure]:
        """All figures, in order."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Figure)]


def slug(text: str) -> str:
    """Lower-case ASCII letters and digits, with hyphens: an id and a file name; "x" where nothing is left."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80] or "x"
