"""HTML and Markdown: whole, escaped, readable on any ground, the same for the same files."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from foretell.reporting.files import read_results
from foretell.reporting.html import to_html
from foretell.reporting.markdown import escaped, svg_file, to_markdown
from foretell.reporting.page import Page
from foretell.reporting.page_style import STYLE
from foretell.reporting.report import build
from foretell.reporting.style import COLOURS, INK
from tests.reporting import made

EVIL = "</svg><script>alert(1)</script> $x^2$ _a_ | `b` [c](d) & \"q\" 'r' \ud800\x00\x1b 漢字 <!-- {0} %s --> ]]>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return build(read_results(made.everything(tmp_path_factory.mktemp("files"))), "A & B", "1.2.3")


@pytest.fixture(scope="module")
def html(page: Page) -> str:
    return to_html(page)


def tree(html: str) -> ET.Element:
    return ET.fromstring(html.removeprefix("<!DOCTYPE html>\n"))


def test_the_markup_is_whole_and_ids_are_unique(html: str) -> None:
    root = tree(html)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids)) > 50
    linked = re.findall(r'(?:href="#|url\(#|aria-labelledby=")([^")]+)', html)
    assert {name for text in linked for name in text.split()} <= set(ids)


def test_nothing_is_fetched_and_nothing_runs(html: str) -> None:
    assert not re.search(r"<(script|link|img|iframe|object)|@import|(src|href)=\"(?!#)", html)
    assert {url for url in re.findall(r"https?://[^\"' )]+", html)} == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_tables_and_figures_say_what_they_are(html: str) -> None:
    root = tree(html)
    tables = list(root.iter("table"))
    assert tables and all(table.find("caption") is not None for table in tables)
    assert all(cell.get("scope") in ("col", "row") for cell in root.iter("th"))
    svgs = list(root.iter("{http://www.w3.org/2000/svg}svg"))
    assert len(svgs) == len(list(root.iter("figure"))) == 8
    for svg in svgs:
        title, desc = svg[0], svg[1]
        assert svg.get("role") == "img" and title.text and desc.text and re.search(r"\d", desc.text)
        assert svg.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"


def test_figures_take_the_ink_of_the_page(page: Page) -> None:
    for figure in page.figures:
        assert INK not in figure.svg and "currentColor" in figure.svg
        colours = set(re.findall(r"#[0-9a-f]{6}\b", figure.svg))
        assert colours <= {*COLOURS, "#ffffff"}, figure.slug
        # White is for numbers within a bar; as the ground of a figure it would hide light ink.
        assert not re.search(r"<path[^>]*fill: #ffffff", figure.svg)
        assert "<style" not in figure.svg and "<metadata" not in figure.svg and "<text" in figure.svg


def contrast(one: str, other: str) -> float:
    """WCAG 2.2: relative luminance, lighter over darker."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_colours_can_be_seen_on_light_and_dark_ground() -> None:
    grounds = dict(zip(("light", "dark"), re.findall(r"--ground: (#\w+)", STYLE), strict=False))
    assert grounds == {"light": "#ffffff", "dark": "#14171c"}
    for colour in COLOURS:
        assert min(contrast(colour, ground) for ground in grounds.values()) >= 3.0, colour
    for name, least in (("ink", 7.0), ("soft", 4.5), ("warn", 4.5)):
        for colour, ground in zip(re.findall(rf"--{name}: (#\w+)", STYLE), grounds.values(), strict=False):
            assert contrast(colour, ground) >= least, (name, colour)


def test_equal_files_give_equal_bytes(page: Page, tmp_path: Path) -> None:
    again = build(read_results(made.everything(tmp_path)[:1]), "A & B", "1.2.3").figures
    before = {figure.slug: figure for figure in page.figures}
    assert len(again) == 4 and all(svg_file(figure) == svg_file(before[figure.slug]) for figure in again)


def test_markdown_has_the_same_tables_and_all_figures(page: Page, html: str) -> None:
    text = to_markdown(page, "report_files")
    assert re.findall(r"\]\(report_files/([\w-]+)\.svg\)", text) == [figure.slug for figure in page.figures]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    num_rows = len(list(tree(html).iter("tr")))
    assert len(rows) == num_rows + len(list(tree(html).iter("table")))
    for figure in page.figures:
        alone = svg_file(figure)
        ET.fromstring(alone)
        assert "prefers-color-scheme:dark" in alone


def test_what_comes_from_files_is_only_text(tmp_path: Path) -> None:
    bench, compare = made.bench((1, 4), differences=[made.difference(expected_text=EVIL)]), made.compare()
    bench["runs"][2]["domain"] = EVIL
    bench["runs"].append(made.run(3, system=EVIL, speedup=made.spread(1.3)))
    bench["environment"] = {key: EVIL for key in made.ENVIRONMENT}
    bench["batches"][0]["notes"] = [EVIL]
    compare["systems"][0]["label"] = EVIL
    compare["warnings"] = [EVIL]
    verify = made.verify_all(controls=[made.control(EVIL, 0.5, 1.0, False, differences=[made.difference(cause=EVIL)])])
    served = made.served(EVIL)
    served["served"]["stages"][0] |= {"name": EVIL, "note": EVIL}
    log = made.LOG.replace("loss_1", "loss_<1")
    files = [("b.json", bench), ("c.json", compare), ("<img src=x>/v.json", verify), ("m$_.jsonl", log)]
    files.append(("s.json", served))
    page = build(read_results([made.write(tmp_path, name, values) for name, values in files]), EVIL, "1")
    html, text = to_html(page), to_markdown(page, "f")
    root = tree(html)
    assert not list(root.iter("script")) and not list(root.iter("img"))
    assert "".join(root.itertext()).count("<script>alert(1)</script>") >= 10
    outside = [line for line in text.splitlines() if not line.startswith("    ")]  # an indented block is code
    assert not re.search(r"(?<!\\)<(?!!-- foretell report)", "\n".join(outside))
    for figure in page.figures:
        assert not list(ET.fromstring(svg_file(figure)).iter("{http://www.w3.org/2000/svg}script"))
    html.encode("utf-8"), text.encode("utf-8")


def test_markdown_escapes() -> None:
    assert escaped("a|b *c* _d_ `e`\n[f](g) <h> $i$ ~j~ #k") == (
        r"a\|b \*c\* \_d\_ \`e\` \[f\](g) \<h\> \$i\$ \~j\~ \#k"
    )


def test_more_than_a_figure_can_show_is_said(tmp_path: Path, undrawn: None) -> None:
    runs = [made.run(0)]
    for domain in ["all", *(f"domain {n:02}" for n in range(20))]:
        runs += [made.run(2, 1, domain, made.spread(1.1))]
    page = build(read_results([made.write(tmp_path, "b.json", made.bench(runs=runs))]), "T", "1")
    by_domain = next(figure for figure in page.figures if figure.title.startswith("Speed-up by depth"))
    assert "13 lines more in the table" in by_domain.notes[-1] and "domain 07" not in by_domain.alt
    acceptance = next(figure for figure in page.figures if figure.title.startswith("Acceptance"))
    assert "domain 19" in acceptance.notes[0]
