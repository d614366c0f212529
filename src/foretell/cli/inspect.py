"""``foretell inspect``: what a checkpoint or adapter holds."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from foretell.cli.options import Json
from foretell.cli.output import results, write_json
from foretell.cli.targets import check_json_target


def inspect(
    path: Annotated[str, Parameter(help="A model folder, a GGUF file, an adapter folder, heads alone, or demo.")],
    /,
    *,
    json: Json = None,
) -> None:
    """Show what a model or adapter holds: trunk, heads, sizes, FLOPs, what engines will do with it, what is wrong.

    Configs and file headers alone are read, so a folder of 700 GB takes a second or two. FLOPs are those of one token's
    forward pass, without attention over the context. The screen shows the outline; --json holds all of it: every tensor
    name, and the recipe an adapter was trained with.

    Try:

        foretell inspect adapters/smollm2-135m-instruct
    """
    check_json_target(json, [path])
    from foretell.cli.inspect_screen import screen
    from foretell.inspection.inspect import inspect_checkpoint

    found = inspect_checkpoint(path)
    console = results()
    for line in screen(found, console.width):
        console.print(line, markup=False, soft_wrap=True)
    write_json(json, found.as_dict())
