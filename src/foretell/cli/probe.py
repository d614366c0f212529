"""``foretell probe``: how good the heads' guesses are on held-out text, before anything is served."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foretell.cli.loading import check_model, load_model
from foretell.cli.options import Dtype, Heads, Json, Model, integer
from foretell.cli.output import progress, results, write_json
from foretell.cli.targets import check_json_target
from foretell.errors import DataError, UsageError

if TYPE_CHECKING:
    from rich.console import Console


def probe(
    model: Model,
    /,
    *,
    data: Annotated[
        list[Path],
        Parameter(
            consume_multiple=True,
            negative=(),
            help='JSONL files: what foretell distill writes, chats ("messages"), or a "text" a line.',
        ),
    ],
    heads: Heads = None,
    max_records: Annotated[int, integer("Take only the first so many records, 0 = all.", 0)] = 200,
    dtype: Dtype = "auto",
    json: Json = None,
) -> None:
    """Read how good the heads' guesses are on held-out text, before anything is served.

    Per depth: agreement with the trunk's argmax; overlap, the mean of sum min(p, q), which sampling at temperature 1
    would accept; chained, the share of positions with all depths up to this one right, which greedy decoding would.

    Try:

        foretell distill demo prompts/chat.jsonl data/held-out.jsonl
        foretell probe demo --heads adapters/smollm2-135m-instruct --data data/held-out.jsonl
    """
    check_json_target(json, [model, *data])
    records = _read(data)[: max_records or None]
    check_model(model, heads)

    from foretell.training.probe import probe as run

    loaded = load_model(model, heads, dtype, pack=False)
    if loaded.heads is None:
        raise UsageError(f"{model} has no heads, so there is nothing to probe; --heads names an adapter folder")
    with progress() as bar:
        task = bar.add_task("rows of text", total=None)
        report = run(
            loaded.heads, records, on_progress=lambda done, total: bar.update(task, completed=done, total=total)
        ).as_dict()
    print_depths(results(), report)
    write_json(json, {"num_records": len(records), **report})


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
