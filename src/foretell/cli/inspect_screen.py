"""An inspection on one screen: what it is, trunk, heads, engines, problems."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from foretell.cli.output import counted
from foretell.inspection.costs import Cost
from foretell.inspection.engines import UNANNOUNCED
from foretell.inspection.inspection import Inspection

_COLUMN = 10
_INNER = 14
_WRAPPING: Any = {"break_long_words": False, "break_on_hyphens": False}
_SHOWN_DEPTHS = 4
_SHOWN_FIGURES = ("agreement", "overlap", "chained")
_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
_FLOPS = ((1e12, "TFLOPs"), (1e9, "GFLOPs"), (1e6, "MFLOPs"), (1e3, "kFLOPs"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_KINDS = {
    "adapter": "adapter (heads for a trunk that is elsewhere)",
    "trunk": "model folder",
    "heads": "heads without their trunk",
    "gguf": "GGUF file",
    "medusa": "Medusa heads",
}


def screen(found: Inspection, width: int = 200) -> list[str]:
    """Lines of at most ``width`` columns for a person, about twenty-five; what is left out is in the JSON."""
    files = f"{counted(found.num_files, 'file')}, {counted(found.num_tensors, 'tensor')}"
    lines = [found.path, f"{_KINDS[found.kind]}: {files}, {_scaled(found.num_bytes, _BYTES, 'bytes')}", ""]
    lines += _block("trunk", _trunk(found), width)
    heads = found.adapter or found
    lines += _block("heads", [*_heads(found), *(_heads(found.adapter) if found.adapter else [])], width)
    if heads.training:
        lines += _block("training", list(_training(heads.training)), width)
    lines += _block("engines", [f"{name}\t{line}" for name, line in _grouped(found.engines)], width)
    problems = found.problems + (found.adapter.problems if found.adapter else [])
    lines += _block("problems", problems or ["none"], width)
    return lines


def _block(name: str, lines: list[str], width: int) -> list[str]:
    """Lines behind the group's name. A tab ends a line's label; what is too long goes on further to the right."""
    wrapped = []
    for index, line in enumerate(lines):
        label, tab, text = line.rpartition("\t")
        head = f"{name if index == 0 else '':<{_COLUMN}}" + (f"{label:<{_INNER}}" if tab else "")
        below = " " * (len(head) if tab else len(head) + 2)
        wrapped += textwrap.wrap(text, max(width, 60), initial_indent=head, subsequent_indent=below, **_WRAPPING)
    return wrapped


def _trunk(found: Inspection) -> list[str]:
    if found.kind in ("heads", "medusa"):
        return ["none in this folder"]
    if made_for := found.made_for:
        lines = [f"made for {made_for['name']}: {made_for['architecture']}, {_shape(made_for)}"]
        return [*lines, _cost(found.costs.trunk)] if found.costs and found.costs.trunk else lines
    sizes = {name: getattr(found, name) for name in ("num_layers", "hidden_size", "vocab_size")}
    tied = {True: ", output tied to the embedding", False: ", output matrix of its own", None: ""}[found.tied]
    lines = [f"{found.architecture or 'unnamed architecture'}: {_shape(sizes)}{tied}"]
    if found.costs and found.costs.trunk:
        side = found.costs.side_parameters
        towers = f"; {_scaled(side)} more for images or sound" if side else ""
        lines.append(_cost(found.costs.trunk) + towers)
    lines.append(_types(found))
    return lines


def _shape(sizes: dict[str, Any]) -> str:
    parts = [
        f"{sizes['num_layers']} layers" if sizes["num_layers"] else "",
        f"{sizes['hidden_size']:,} wide" if sizes["hidden_size"] else "",
        f"vocabulary {sizes['vocab_size']:,}" if sizes["vocab_size"] else "",
    ]
    return ", ".join(part for part in parts if part) or "sizes not said"


def _cost(cost: Cost) -> str:
    active = f", {_scaled(cost.active)} active" if cost.active < 0.9 * cost.parameters else ""
    flops = _scaled(cost.flops_per_token, _FLOPS, "FLOPs")
    return f"{_scaled(cost.parameters)} parameters{active}, {flops} a token (attention over the context left out)"


def _types(found: Inspection) -> str:
    stored = ", ".join(f"{dtype} {_scaled(count)}" for dtype, count in found.dtypes.items())
    if (quantised := found.quantisation) is None:
        return f"stored as {stored}"
    bits = f", {quantised.bits} bits" if quantised.bits else ""
    but = f", {counted(len(quantised.exempt), 'exception')}" if quantised.exempt else ""
    return f"stored as {stored}; quantised by {quantised.method}{bits}{but}"


def _heads(found: Inspection) -> list[str]:
    if not found.num_modules and not found.claimed_heads and not found.models:
        return [] if found.adapter else ["none"]
    if found.kind == "adapter":
        lines = []
    elif not found.family:
        lines = [found.models or f"{counted(len(found.mtp_tensors), 'tensor')} in no layout that is known"]
    else:
        stored = "" if found.kind == "medusa" else f"{counted(found.num_modules or 0, 'module')} by tensors, "
        name = f"{found.family} ({found.models})" if found.models else found.family
        lines = [f"{name}", f"{stored}{_claimed(found)} by config"]
    lines += _conventions(found)
    if found.blocked:
        lines.append(f"foretell cannot run them: {found.blocked}")
    if found.kind in ("adapter", "heads"):
        lines.append(_types(found))
    depths = found.costs.depths if found.costs else []
    for index, cost in enumerate(depths[:_SHOWN_DEPTHS]):
        lines.append(f"{'each depth' if len(depths) == 1 else f'depth {index + 1}'}\t{_depth(cost)}")
    if len(depths) > _SHOWN_DEPTHS:
        lines.append(f"and {len(depths) - _SHOWN_DEPTHS} more")
    if found.draft_vocab:
        coverage = found.draft_vocab.get("coverage")
        covered = f", {coverage:.1%} of the text" if isinstance(coverage, float) else ""
        lines.append(f"drafts from {found.draft_vocab.get('size'):,} of the tokens{covered}")
    return lines


def _claimed(found: Inspection) -> str:
    """Configs of some families never say how many there are."""
    return str(found.claimed_heads or ("none, as ever," if found.family in UNANNOUNCED else "none"))


def _depth(cost: Cost) -> str:
    copies = f" (and {_scaled(cost.copies)} of copies)" if cost.copies else ""
    active = f", {_scaled(cost.active)} active with the output" if cost.active else ""
    share = f" = {cost.share_of_trunk:.1%} of the trunk's" if cost.share_of_trunk is not None else ""
    flops = _scaled(cost.flops_per_token, _FLOPS, "FLOPs")
    return f"{_scaled(cost.parameters)} parameters{copies}{active}, {flops} a token{share}"


def _conventions(found: Inspection) -> list[str]:
    """The settings that decide whether two tools mean the same heads."""
    if not (heads := found.heads):
        return []
    words: dict[str, dict[Any, str]] = {
        "hidden_source": {
            "post": "reads states after the final norm",
            "pre": "reads states before the final norm",
            "below": "reads states before the last layer",
        },
        "concat": {"embedding_first": "[embedding, state]", "hidden_first": "[state, embedding]"},
        "feedback": {"normed": "passes on its state after its norm", "raw": "passes on its state before its norm"},
        "own_output": {True: "output matrices of its own"},
        "zero_first": {True: "zeros for the first embedding"},
        "centred_norms": {True: "norms stored as offsets from 1"},
    }
    said = [table[heads[name]] for name, table in words.items() if heads.get(name) in table]
    depths = f"one module for {heads['num_depths']} depths and more" if heads["unrolled"] and found.made_for else ""
    kind = heads["kind"] if found.made_for else ""
    modules = depths or (counted(heads["num_modules"], "module") if found.made_for else "")
    return [", ".join(part for part in (kind, modules, *said) if part)]


def _training(training: dict[str, Any]) -> Iterator[str]:
    """The held-out figures one line a depth; what else was stored on one line, the recipe in the JSON alone."""
    held_out = training.get("held_out")
    depths = held_out.get("depths") if isinstance(held_out, dict) else None
    plain = {
        name: value
        for name, value in training.items()
        if name not in ("recipe", "held_out", "output") and isinstance(value, str | int | float)
    }
    if plain:
        yield ", ".join(f"{name} {_rounded(value)}" for name, value in plain.items())
    if isinstance(depths, list) and all(isinstance(depth, dict) for depth in depths):
        for depth in depths:
            figures = ", ".join(f"{name} {_rounded(depth.get(name, 'n/a'))}" for name in _SHOWN_FIGURES)
            yield f"depth {depth.get('depth', '?')}\ton held-out text: {figures}"
    elif held_out is not None:
        yield f"held_out {held_out}"


def _grouped(engines: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Engines one by one; on one line where all do the same."""
    if len(engines) > 1 and len(set(engines.values())) == 1:
        yield "all four", next(iter(engines.values()))
    else:
        yield from engines.items()


def _rounded(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) or isinstance(value, float) and abs(value) >= 1000:
        return f"{value:,.0f}"
    return float(f"{value:.3g}") if isinstance(value, float) else value


def _scaled(number: float, units: tuple[tuple[float, str], ...] = _UNITS, plain: str = "") -> str:
    """``671.0 B``: a number to four digits with its unit."""
    for size, unit in units:
        if number >= size * 0.9995:
            return f"{number / size:.3g} {unit}" if number < size * 99.95 else f"{number / size:.0f} {unit}"
    return f"{number:,} {plain}".rstrip()
