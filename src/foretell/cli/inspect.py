"""``foretell inspect``: what a checkpoint or adapter holds."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from foretell.cli.options import Json
from foretell.cli.output import check_json_target, results, write_json


def inspect(
    path: Annotated[str, Parameter(help="A model folder, a GGUF file, an adapter folder, or demo.")],
    /,
    *,
    json: Json = None,
) -> None:
    """Show what a model or adapter holds: kind, depths, conventions, tensors. No weight is loaded.

    Try:

        foretell inspect adapters/smollm2-135m-instruct
    """
    check_json_target(json)
    from foretell.checkpoints.inspect import inspect_checkpoint

    found = inspect_checkpoint(path).as_dict()
    console = results()
    for line in outline(found):
        console.print(line, markup=False, soft_wrap=True)
    write_json(json, found)


def outline(value: Any, indent: int = 0) -> list[str]:
    """Nested values as indented ``name: value`` lines; a list of plain values takes one line."""
    pad = "  " * indent
    items = value.items() if isinstance(value, dict) else enumerate(value)
    lines = []
    for name, item in items:
        head = f"{pad}{name}:" if isinstance(value, dict) else f"{pad}-"
        if isinstance(item, dict) and item or isinstance(item, list) and any(isinstance(i, dict | list) for i in item):
            lines += [head, *outline(item, indent + 1)]
        elif isinstance(item, list):
            lines.append(f"{head} {', '.join(map(str, item)) or 'none'}")
        else:
            lines.append(f"{head} {'none' if item is None or item == {} else item}")
    return lines
