"""A report as Markdown, its figures as SVG files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from foretell.reporting.html import GENERATOR, titled
from foretell.reporting.page import Block, Code, Figure, Page, Paragraph, Table

_INK = (
    "<style>svg{color:#1b1f24}@media (prefers-color-scheme:dark){svg{color:#e6edf3}}"
    "@media print{svg{color:#000000}}</style>"
)
"""A figure that stands in a file of its own has no page to take its colour from."""


def to_markdown(page: Page, folder: str) -> str:
    """The text; figures are ``folder``/SLUG.svg. Everything that came from result files is escaped."""
    parts = [f"<!-- {GENERATOR} {re.sub('-{2,}|[<>]', '-', page.version)} -->", f"# {escaped(page.title)}"]
    parts += [_paragraph(paragraph) for paragraph in page.lead]
    for section in page.sections:
        parts.append(f"## {escaped(section.title)}")
        for block in section.blocks:
            parts += _block(block, folder)
    return "\n\n".join(parts) + "\n"


def svg_file(figure: Figure) -> str:
    """The figure as a file of its own, dark on light ground and light on dark."""
    text = titled(figure)
    at = text.index(">") + 1
    return f'<?xml version="1.0" encoding="utf-8"?>\n<!-- {GENERATOR} -->\n{text[:at]}{_INK}{text[at:]}\n'


def escaped(text: str) -> str:
    """Text that no Markdown reader takes for markup, formulas or HTML; on one line."""
    return re.sub(r"([\\`*_{}\[\]<>|#~$&!])", r"\\\1", " ".join(text.split()))


def _block(block: Block, folder: str) -> Iterator[str]:
    if isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, Figure):
        yield f"![{escaped(block.title)}: {escaped(block.alt)}]({folder}/{block.slug}.svg)"
        yield " ".join([f"*{escaped(block.title)}.*", *map(escaped, block.notes)])
    elif isinstance(block, Code):
        yield f"    {' '.join(block.text.split())}"
    else:
        yield _paragraph(block)


def _paragraph(block: Paragraph) -> str:
    return f"{'**Note:** ' * block.warns}{escaped(block.text)}"


def _table(table: Table) -> Iterator[str]:
    yield f"**{escaped(table.caption)}**"
    yield "\n".join([_row(table.columns), _row(["---"] * len(table.columns), raw=True), *map(_row, table.rows)])
    if table.notes:
        yield " ".join(map(escaped, table.notes))


def _row(cells: Sequence[str], raw: bool = False) -> str:
    return f"| {' | '.join(cell if raw else escaped(cell) for cell in cells)} |"
