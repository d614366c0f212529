"""``foretell probe``: how good the heads' guesses are on held-out text, before anything is served."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foretell.cli.assets import prompt_files
from foretell.cli.loading import check_model, load_model
from foretell.cli.options import Dtype, Heads, Json, Model, NumPrompts, Prompts, integer
from foretell.cli.output import note, progress, results, write_json
from foretell.cli.probe_served import compare, parse_served, print_served
from foretell.cli.prompts import check_prompts
from foretell.cli.targets import check_json_target
from foretell.errors import DataError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from foretell.models.heads import Heads as HeadsModule


def probe(
    model: Model,
    /,
    *,
    data: Annotated[
        list[Path] | None,
        Parameter(
            consume_multiple=True,
            negative=(),
            help='JSONL files: what foretell distill writes, chats ("messages"), or a "text" a line.',
        ),
    ] = None,
    heads: Heads = None,
    served: Annotated[
        str | None,
        Parameter(
            help="Compare with what was served on --prompts: shares of rounds accepted up to each depth "
            "(0.45,0.24,0.11), a bench file, or here = decode them now."
        ),
    ] = None,
    prompts: Prompts = None,
    num_prompts: NumPrompts = None,
    max_tokens: Annotated[int, integer("Length of the answers that were served, in tokens.", 2)] = 64,
    max_records: Annotated[int, integer("Take only the first so many records, 0 = all.", 0)] = 200,
    dtype: Dtype = "auto",
    json: Json = None,
) -> int:
    """Read how good the heads' guesses are on held-out text, before anything is served.

    Per depth: agreement with the trunk's argmax; overlap, the mean of sum min(p, q), which sampling at temperature 1
    would accept; chained, the share of positions with all depths up to this one right, which greedy decoding would.

    With --served the trunk answers the prompts, and walking over the rounds of those answers predicts what decoding
    accepts. A table names the first stage that disagrees with it: the template, the state that the heads read, the
    order of eh_proj's halves, the data, or the engine; the exit code is then 1. Warnings on standard error say where
    texts are such that the figures mean little.

    Try:

        foretell distill demo prompts/chat.jsonl data/held-out.jsonl
        foretell probe demo --heads adapters/smollm2-135m-instruct --data data/held-out.jsonl
        foretell probe demo --heads adapters/smollm2-135m-instruct --served here --num-prompts 4
    """
    if not data and served is None:
        raise UsageError("--data: give JSONL files to probe on, or --served to compare with what was served")
    given = data or []
    shares = None if served is None else parse_served(served)
    files = [] if served is None else prompt_files(prompts)
    check_json_target(json, [model, *given, *files, *([served] if served and Path(served).is_file() else [])])
    records = _read(given)[: max_records or None]
    check_prompts(files)
    check_model(model, heads)

    from foretell.analysis.environment import environment

    loaded = load_model(model, heads, dtype, pack=False)
    if loaded.heads is None:
        raise UsageError(f"{model} has no heads, so there is nothing to probe; --heads names an adapter folder")
    report = _probed(loaded.heads, records) if records else {}
    warnings = _reasons(loaded.heads, records, heads, [*given, *files])
    if report:
        print_depths(results(), report)
    agreed = True
    if served is not None:
        compared = compare(loaded, files, num_prompts, max_tokens, shares, records)
        if report:
            results().print()
        print_served(results(), compared)
        report["served"] = compared.as_dict()
        warnings += compared.warnings
        agreed = compared.first is None
    for warning in warnings:
        note(f"warning: {warning}")
    where = environment(loaded.trunk.dtype_name, shlex.join(["foretell", *sys.argv[1:]]))
    head = {"environment": where, "model": loaded.trunk.name, "num_records": len(records), "warnings": warnings}
    write_json(json, {**head, **report})
    return 0 if agreed else 1


def _probed(heads: HeadsModule, records: list[tuple[str, int, dict[str, Any]]]) -> dict[str, Any]:
    from foretell.training.probe import probe as run

    with progress() as bar:
        task = bar.add_task("rows of text", total=None)
        return run(
            heads, records, on_progress=lambda done, total: bar.update(task, completed=done, total=total)
        ).as_dict()


def _reasons(
    heads: HeadsModule, records: list[tuple[str, int, dict[str, Any]]], source: str | None, files: Sequence[Path]
) -> list[str]:
    """Why the figures of --data mean little, and where a file was among the heads' own training data."""
    from foretell.analysis.measured_texts import reasons_against_texts
    from foretell.cli.eval_runs import trained_on
    from foretell.training.documents import DocumentReader
    from foretell.training.sources import Record

    reader = DocumentReader(heads.trunk.tokenizer, heads.trunk.vocab_size, supervise="answer")
    texts = [reader.read(Record(values, file, line)).token_ids for file, line, values in records]
    return trained_on(source, files) + (reasons_against_texts(heads.trunk, texts) if texts else [])


def print_depths(console: Console, report: dict[str, Any]) -> None:
    """The table of a probe report."""
    from rich.table import Table

    def number(value: float | None, digits: int) -> str:
        return "n/a" if value is None else f"{value:.{digits}f}"

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("depth", "positions", "agreement", "overlap", "chained"):
        table.add_column(name, justify="right")
    for depth in report["depths"]:
        shares = [number(depth[name], 3) for name in ("agreement", "overlap", "chained")]
        table.add_row(str(depth["depth"]), f"{depth['num_positions']:,}", *shares)
    console.print(table)
    length = number(report["mean_acceptance_length"], 2)
    console.print(f"mean acceptance length to expect at depth {len(report['depths'])}: {length}")


_FORMS = {"token_ids", "messages", "completion", "text"}
"""What a record may hold (training/documents), looked at before the model is loaded."""


def _read(files: Sequence[Path]) -> list[tuple[str, int, dict[str, Any]]]:
    from foretell.training.jsonl import read_jsonl

    records = []
    for file in files:
        for number, record in read_jsonl(file):
            if not _FORMS & record.keys():
                raise DataError(f"needs one of {', '.join(sorted(_FORMS))}", file, number)
            records.append((str(file), number, record))
    return records
