"""``foretell probe --served``: predicted acceptance beside what was served, and the first stage that disagrees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.cli.output import note
from foretell.errors import DataError, ForetellError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from foretell.analysis.served import ServedReport
    from foretell.models.mtp_model import MTPModel

_FEW = 200
HERE = "here"
"""In place of figures: serve the prompts with Foretell's own engine."""


def parse_served(text: str) -> list[float] | None:
    """Acceptance by depth: of "0.45,0.24,0.11", or of a bench file (its deepest chain, all domains, batch 1 first).

    None for "here". Raises UsageError naming the option.
    """
    if text == HERE:
        return None
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = _from_bench(Path(text))
    if not all(math.isfinite(share) and 0 <= share <= 1 for share in found) or found != sorted(found, reverse=True):
        raise UsageError(
            f'--served: "{text}" is not allowed; give shares of rounds accepted up to depth 1, 2, ..., from 0 to 1 and '
            "none above the one before it (what engines call acceptance by position)"
        )
    return found


def _from_bench(file: Path) -> list[float]:
    from foretell.checkpoints.files import read_json
    from foretell.planning.bench_runs import accepted_run
    from foretell.planning.drafters import HEADS
    from foretell.planning.fields import an_object

    try:
        values = read_json(file)
        run = accepted_run(values, file, batch=1)
        if run.drafter != HEADS:
            raise DataError(f"drafted by {run.drafter or 'nobody it names'}, not by {HEADS}", file)
        where = an_object(values.get("environment", {}), file, "environment")
    except (ForetellError, ValueError, RecursionError) as error:  # JSON that Python's reader gives up on
        raise UsageError(
            f"--served: {error}. Give {HERE}, numbers (0.45,0.24,0.11), or a bench file with chains of {HEADS}"
        ) from error
    command = where.get("command") or "a command that the file does not name"
    note(f"served figures are those of: {command}; give its prompts and --max-tokens here")
    return run.shares


def compare(
    model: MTPModel,
    files: Sequence[Path],
    num_prompts: int | None,
    max_tokens: int,
    served: list[float] | None,
    records: Sequence[tuple[str, int, dict[str, Any]]],
) -> ServedReport:
    """Decode the prompts plainly, walk the heads over the answers, and ask stage after stage."""
    from foretell.analysis import served as analysis
    from foretell.cli.prompts import load_prompts
    from foretell.training.documents import DocumentReader
    from foretell.training.sources import Record

    assert model.heads is not None
    limit = model.heads.config.max_depth
    if served is not None and limit is not None and len(served) > limit:
        raise UsageError(f"--served: {len(served)} depths, and these heads have {limit}; give at most {limit} shares")
    prompts = load_prompts(model, files, num_prompts)
    template = analysis.check_template(_template_pairs(model, files, num_prompts))
    note(f"decoding {len(prompts)} prompts plainly ...")
    texts = analysis.answers(model, prompts, max_tokens)
    if served is None:
        note("decoding them with the heads ...")
        served = analysis.serve(model, prompts, max_tokens, model.heads.config.num_depths)
    probed: list[float] = []
    if records:
        note(f"walking: {len(records)} records of --data ...")
        reader = DocumentReader(model.tokenizer, model.trunk.vocab_size, supervise="answer")
        documents = [reader.read(Record(values, file, line)) for file, line, values in records]
        probed = analysis.predict_documents(model.heads, documents, len(served))
    return analysis.compare_served(
        model.heads, prompts, texts, max_tokens, served, template, probed, lambda stage: note(f"walking: {stage} ...")
    )


def _template_pairs(
    model: MTPModel, files: Sequence[Path], num_prompts: int | None
) -> list[tuple[list[int], list[int]]]:
    """Each prompt as training would encode what stands before an answer, and as the engine does."""
    from foretell.decoding.engine import Engine
    from foretell.evaluation.prompt_files import encoded_prompts
    from foretell.training.documents import DocumentReader
    from foretell.training.sources import Record

    reader = DocumentReader(model.tokenizer, model.trunk.vocab_size, supervise="answer")
    pairs = []
    for file, line, record, token_ids in encoded_prompts(Engine(model), files, num_prompts):
        if messages := record.get("messages"):
            values: dict[str, Any] = {"messages": [*messages, {"role": "assistant", "content": "x"}]}
        else:
            values = {"prompt": record["prompt"], "completion": "x"}
        try:
            document = reader.read(Record(values, str(file), line))
        except ForetellError:
            continue  # a chat that training does not take, such as one that ends in another role
        first = document.supervised.index(True) if True in document.supervised else len(document.supervised)
        pairs.append((document.token_ids[:first], token_ids))
    return pairs


def print_served(console: Console, report: ServedReport) -> None:
    """A line for what is predicted and served, one a stage, and the verdict."""
    from rich.table import Table

    from foretell.reporting.labels import shares

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("stage", "acceptance by depth", "differs by", "verdict", "what was compared"):
        table.add_column(name)
    table.add_row("predicted", shares(report.predicted, 3), "", "", f"walked over {report.num_rounds:,} rounds")
    table.add_row("served", shares(report.served, 3), f"{report.difference:.3f}", "", "from the prediction")
    for stage in report.stages:
        gap = "" if stage.difference is None else f"{stage.difference:.3f}"
        agrees = {True: "ok", False: "WRONG", None: "-"}[stage.agrees]
        table.add_row(stage.name, shares(stage.acceptance, 3) if stage.acceptance else "", gap, agrees, stage.note)
    console.print(table)
    console.print()
    first = report.first
    if report.num_rounds < _FEW:
        console.print(
            f"Only {report.num_rounds} rounds: a share of 0.5 has an error of {50 / report.num_rounds**0.5:.0f} "
            "points; give more prompts.",
            markup=False,
            soft_wrap=True,
        )
    verdict = "No stage disagrees." if first is None else f"First stage that disagrees: {first.name} ({first.note})."
    console.print(verdict, markup=False, soft_wrap=True)
