"""Option types that several commands share, so that one name means one thing everywhere. No heavy import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from foretell.errors import UsageError

DtypeName = Literal["auto", "float32", "bfloat16"]

Model = Annotated[str, Parameter(help="Trunk: a folder, a GGUF file, a hub name, or demo (SmolLM2-135M-Instruct).")]
Heads = Annotated[str | None, Parameter(help="Adapter folder with the heads; without it, heads the checkpoint ships.")]
Dtype = Annotated[
    DtypeName, Parameter(help="Type to compute in. auto: bfloat16 where this CPU packs it, else float32.")
]
Json = Annotated[
    Path | None, Parameter(name="--json", help="Also write what is printed to this file; only JSON is overwritten.")
]
MaxTokens = Annotated[int, Parameter(validator=Number(gte=1), help="Most tokens to produce for a prompt.")]
Prompts = Annotated[
    list[Path] | None,
    Parameter(
        consume_multiple=True,
        negative=(),
        help='JSONL files, a record with "messages" or "prompt" a line; its domain is in "domain" or the file name. '
        "Default: the project's held-out prompts (prompts/).",
    ),
]
NumPrompts = Annotated[
    int | None, Parameter(validator=Number(gte=1), help="Take only so many prompts from the start of each file.")
]
Depths = Annotated[str | None, Parameter(help="Depths to run, for example 1,2,3 (drafted tokens a step).")]


def parse_depths(text: str) -> list[int]:
    """ "0,1,2" -> [0, 1, 2]; raises UsageError naming the option."""
    try:
        depths = [int(part) for part in text.split(",")]
    except ValueError:
        depths = [-1]
    if any(depth < 0 for depth in depths):
        raise UsageError(f'--depths: "{text}" is not allowed; give integers of at least 0 with commas, such as 0,1,2,3')
    return sorted(set(depths))
