"""``foretell inspect``: what a checkpoint or adapter holds."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from foretell.cli.options import Json
from foretell.cli.output import results, write_json
from foretell.cli.targets import check_json_target

_SHOWN_NAMES = 4
_SHOWN_FIGURES = ("agreement", "overlap", "chained")


def inspect(
    path: Annotated[str, Parameter(help="A model folder, a GGUF file, an adapter folder, or demo.")],
    /,
    *,
    json: Json = None,
) -> None:
    """Show what a model or adapter holds: kind, depths, conventions, tensors. No weight is loaded.

    The screen shows the outline; --json holds all of it: every tensor name, and the recipe an adapter was trained with.

    Try:

        foretell inspect adapters/smollm2-135m-instruct
    """
    check_json_target(json, [path])
    from foretell.checkpoints.inspect import inspect_checkpoint

    found = inspect_checkpoint(path).as_dict()
    console = results()
    for line in outline(_brief(found)):
        console.print(line, markup=False, soft_wrap=True)
    write_json(json, found)


def _brief(found: dict[str, Any]) -> dict[str, Any]:
    """What fits on a screen: no recipe, the held-out figures one line a depth, the first tensor names only."""
    brief = {name: value for name, value in found.items() if name == "problems" or value not in ("", {}, [])}
    names = found["mtp_tensors"]
    if len(names) > _SHOWN_NAMES:
        brief["mtp_tensors"] = [*names[:_SHOWN_NAMES], f"and {len(names) - _SHOWN_NAMES} more"]
    training = {name: value for name, value in found.get("training", {}).items() if name != "recipe"}
    held_out = training.get("held_out")
    depths = held_out.get("depths") if isinstance(held_out, dict) else None
    if isinstance(depths, list) and all(isinstance(depth, dict) for depth in depths):
        training["held_out"] = {
            f"depth {depth.get('depth')}": ", ".join(
                f"{name} {_rounded(depth.get(name, 'n/a'))}" for name in _SHOWN_FIGURES
            )
            for depth in depths
        }
    if training:
        brief["training"] = training
    return brief


def _rounded(value: Any) -> Any:
    return float(f"{value:.3g}") if isinstance(value, float) and abs(value) < 1000 else value


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
            lines.append(f"{head} {'none' if item is None or item == {} else _rounded(item)}")
    return lines
