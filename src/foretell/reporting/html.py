"""A report as one HTML file: style and figures within, no script, nothing fetched from anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from foretell.reporting.page import Block, Code, Figure, Page, Paragraph, Section, Table
from foretell.reporting.page_style import STYLE

_ONE_LINE = 24
"""Letters of a table's cell that is not broken."""
_HALF_PT = 400.0
"""Figures up to this width stand two in a row on paper."""
GENERATOR = "foretell report"
"""In every report: what tells ours from other files."""


def to_html(page: Page) -> str:
    """The whole file. Everything that came from result files is escaped; the markup is well-formed XML as well."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8" />',
        '<meta name="viewport" content="width=device-width, initial-scale=1" />',
        f'<meta name="generator" content="{GENERATOR} {escape(page.version)}" />',
        f"<title>{escape(page.title)}</title>",
        f"<style>\n{STYLE}</style>",
        "</head>",
        "<body>",
        f"<header>\n<h1>{escape(page.title)}</h1>",
        *map(_paragraph, page.lead),
        "</header>",
        *_contents(page.sections),
        "<main>",
    ]
    for section in page.sections:
        parts += [f'<section id="{section.slug}">', f"<h2>{escape(section.title)}</h2>"]
        parts += [*_blocks(section.blocks), "</section>"]
    parts += ["</main>", f"<footer>Made by {GENERATOR} {escape(page.version)}.</footer>", "</body>", "</html>"]
    return "\n".join(parts) + "\n"


def _contents(sections: Sequence[Section]) -> list[str]:
    links = [f'<li><a href="#{section.slug}">{escape(section.title)}</a></li>' for section in sections]
    return ['<nav aria-label="Sections">', "<ul>", *links, "</ul>", "</nav>"] if links else []


def _blocks(blocks: Sequence[Block]) -> Iterator[str]:
    """Figures that follow one another share a row where the page is wide enough."""
    in_row = False
    for block in blocks:
        if isinstance(block, Figure) != in_row:
            yield "</div>" if in_row else '<div class="figures">'
            in_row = not in_row
        yield _block(block)
    if in_row:
        yield "</div>"


def _block(block: Block) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Figure):
        return _figure(block)
    if isinstance(block, Code):
        return f"<pre><code>{escape(block.text)}</code></pre>"
    return _paragraph(block)


def _paragraph(block: Paragraph) -> str:
    if block.warns:
        return f'<p class="warns"><b>Note:</b> {escape(block.text)}</p>'
    return f"<p>{escape(block.text)}</p>"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    lines = [f'<div class="table" tabindex="0" role="region" aria-label="{escape(table.caption)}">']
    lines += ["<table>", f"<caption>{escape(table.caption)}</caption>", f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    for row in table.rows:
        cells = [_cell('th scope="row"' if i < table.num_headings else "td", cell) for i, cell in enumerate(row)]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    lines += ["</tbody>", "</table>", "</div>", *(f'<p class="note">{escape(note)}</p>' for note in table.notes)]
    return "\n".join(lines)


def _cell(tag: str, text: str) -> str:
    """A short one, such as a number with its range, stays on one line."""
    broad = ' class="long"' if len(text) > _ONE_LINE else ""
    return f"<{tag}{broad}>{escape(text)}</{tag.split()[0]}>"


def _figure(figure: Figure) -> str:
    notes = "".join(f" {escape(note)}" for note in figure.notes)
    width = re.search(r' width="([\d.]+)pt"', figure.svg)
    wide = ' class="wide"' if width and float(width[1]) > _HALF_PT else ""
    return (
        f'<figure id="{figure.slug}"{wide}>\n{titled(figure)}\n'
        f"<figcaption><b>{escape(figure.title)}.</b>{notes}</figcaption>\n</figure>"
    )


def titled(figure: Figure) -> str:
    """The figure's ``<svg>`` with its title and what it shows, for readers who hear it."""
    names = (
        f'<title id="{figure.slug}-title">{escape(figure.title)}</title>'
        f'<desc id="{figure.slug}-desc">{escape(figure.alt)}</desc>'
    )
    opened, rest = figure.svg.split(">", 1)
    return f'{opened} role="img" aria-labelledby="{figure.slug}-title {figure.slug}-desc">{names}{rest}'
