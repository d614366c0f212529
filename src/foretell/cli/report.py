"""``foretell report``: result files as one page with tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from foretell.cli.options import switch
from foretell.cli.output import counted, note, results
from foretell.cli.targets import check_target
from foretell.errors import UsageError

_HTML = Path("report.html")


def report(
    files: Annotated[
        list[Path],
        Parameter(
            name="FILE",
            negative=(),
            help="What bench, compare, verify, probe, eval and plan write with --json, a run_dir or its metrics.jsonl, "
            "an adapter folder. What a file is, is seen from what it holds.",
        ),
    ],
    /,
    *,
    html: Annotated[
        Path | None,
        Parameter(help="Write one HTML file, figures within. Default: report.html, where --markdown is not given."),
    ] = None,
    markdown: Annotated[
        Path | None,
        Parameter(help="Write Markdown; figures go to a folder beside it: report_files for report.md."),
    ] = None,
    title: Annotated[str, Parameter(help="Heading of the page.")] = "Foretell report",
    overwrite: Annotated[bool, switch("Replace an earlier report; no other file is ever replaced.")] = False,
) -> None:
    """Make a page of result files: what was gained, where it loses, acceptance, costs, plans, quality, training, proof.

    No model is loaded. The page needs no network and no script; it can be printed, and follows a dark desktop. Bench
    files share a figure where machine, versions and command are the same and the batch sizes are others; else each has
    its own. The results, in sentences, are printed too.

    Try:

        foretell report docs/benchmarks/smollm2-135m-batches-1-4.json docs/benchmarks/smollm2-135m-batches-8-16.json
        foretell report docs/benchmarks/smollm2-135m-bf16.json runs/smollm2-135m-instruct --html bf16.html
    """
    if html is None and markdown is None:
        html = _HTML

    from foretell.analysis.environment import package_version
    from foretell.reporting.files import read_results
    from foretell.reporting.html import to_html
    from foretell.reporting.markdown import svg_file, to_markdown
    from foretell.reporting.report import build
    from foretell.reporting.write import figures_folder, write_files

    found = read_results(files)  # before the targets: of a wrong file and a page that exists the first is told
    targets = _check_targets(html, markdown, overwrite)
    page = build(found, title, package_version("foretell"))
    texts: dict[Path, str] = {}
    folders: dict[Path, dict[str, str]] = {}
    if html is not None:
        texts[targets[html]] = to_html(page)
    if markdown is not None:
        folder = figures_folder(targets[markdown])
        texts[targets[markdown]] = to_markdown(page, folder.name)
        folders[folder] = {f"{figure.slug}.svg": svg_file(figure) for figure in page.figures}
    write_files(texts, folders)
    for paragraph in page.lead:
        results().print(paragraph.text, markup=False, soft_wrap=True)
    for name, problems in found.problems.items():
        note(f"{name}: {counted(len(problems), 'value')} not known; the page lists them")
    for path in (html, markdown):
        if path is not None:
            note(f"written: {path}")


def _check_targets(html: Path | None, markdown: Path | None, overwrite: bool) -> dict[Path, Path]:
    """Each path with the file that it means; raises UsageError before any work where one cannot be written."""
    from foretell.reporting.write import check_folder, check_replaceable, figures_folder

    found = {}
    for option, path in (("--html", html), ("--markdown", markdown)):
        if path is not None:
            found[path] = check_target(option, path)
            check_replaceable(option, found[path], overwrite)
    if markdown is not None:
        if html is not None and found[html] == found[markdown]:
            raise UsageError(f"--markdown: {markdown} is --html's file too; give another name")
        check_folder("--markdown", figures_folder(found[markdown]), overwrite)
    return found


def check_report_target(html: Path) -> None:
    """Raise UsageError where a page cannot be written to ``html``; an earlier report may stand there."""
    _check_targets(html, None, overwrite=True)
